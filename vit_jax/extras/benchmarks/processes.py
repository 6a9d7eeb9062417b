"""Measurements in processes of their own, so that a failed one does not affect the others."""

import pathlib
import re
import resource


def in_process(context, function, *arguments) -> dict:
  """Calls the function in a new process; returns its result, or {"error": message}."""
  ours, theirs = context.Pipe()
  process = context.Process(target=_answer, args=(theirs, function, arguments), daemon=True)
  process.start()
  theirs.close()  # so that the pipe ends when the process ends
  try:
    return ours.recv()
  except EOFError:
    return {"error": "its process ended"}
  finally:
    process.join()


def _answer(pipe, function, arguments):
  try:
    pipe.send(function(*arguments))
  except Exception as error:  # the libraries may raise anything, and the other cases must go on
    words = str(error).partition("\n")[0]
    pipe.send({"error": f"{type(error).__name__}: {words}"})


def limit_data(memory: int):
  """Lets this process take that many bytes more than it has now; Linux only."""
  status = pathlib.Path("/proc/self/status").read_text()
  own = 1024 * int(re.search(r"VmData:\s+(\d+) kB", status)[1])
  _, most = resource.getrlimit(resource.RLIMIT_DATA)
  resource.setrlimit(resource.RLIMIT_DATA, (own + memory, most))
