"""Pickled files of weights, which are never read: they could run any code. Says how to convert."""

import json
import pathlib
import shlex

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".tar")
NAMES = ("pytorch_model.bin", "model.pt", "model.pth")  # in folders
# The program that a message gives is one line, because messages are. It makes tensors alone: all
# other classes become `Other`, so that settings, optimizers and modules are read without running
# their code. It looks for state dictionaries, which hold tensors called weight, in mappings within
# mappings, and for parameters of pickled modules. An argument names one, or a prefix inside it.
_PROGRAM = "; ".join(
  (
    "import pickle, sys, torch, types",
    "from safetensors.torch import save_file",
    "no = lambda self, *a, **k: None",
    'Other = type("Other", (dict,), dict(__init__=no, append=no, extend=no, '
    "__hash__=object.__hash__, "
    "__setstate__=lambda self, x: self.update(x) if isinstance(x, dict) else None))",
    'known = ("collections.OrderedDict", "torch.Tensor", "torch.nn.parameter.Parameter", '
    '"torch._utils._rebuild_", "torch._tensor._rebuild_")',
    'Reader = type("Reader", (pickle.Unpickler,), dict(find_class=lambda self, m, n: '
    'pickle.Unpickler.find_class(self, m, n) if (m + "." + n).startswith(known) else '
    '(lambda *a: Other) if n == "getattr" else Other))',
    'reader = types.SimpleNamespace(__name__="", Unpickler=Reader, '
    "load=lambda f, **k: Reader(f, **k).load())",
    'own = lambda x: {str(k): v for k, v in {**x, **(x.get("_parameters") or {})}.items() '
    'if torch.is_tensor(v)} | {k + "." + n: v for k, x in (x.get("_modules") or {}).items() '
    "if x for n, v in own(x).items()}",
    'find = lambda x, key, deep: {key: own(x)} if any(n.endswith("weight") for n in own(x)) else '
    "{n: y for k, x in x.items() if deep and isinstance(x, dict) "
    'for n, y in find(x, (key + "." + str(k)).strip("."), deep - 1).items()}',
    'parts = find({"": torch.load(source, "cpu", reader, weights_only=False)}, "", 5)',
    'key = (sys.argv[1:] or [k for k in parts if "ema" in k or "teacher" in k] or [*parts, ""])[0]',
    'taken = {n[len(key):].strip("."): v.detach().clone().contiguous() for k, x in parts.items() '
    'for n, v in (((k + "." + n).strip("."), v) for n, v in x.items()) '
    'if n.startswith(key and key + ".") and v.is_floating_point()}',
    'has = "It has " + (", ".join(parts) or "no arrays of a model") + "."',
    'taken or sys.exit(source + " has no model called " + repr(key) + ". " + has)',
    "save_file(taken, result)",
    'print(result, "has", key or "the model", "of", source + ".", (has + " To take another one, '
    'add its name at the end of the command.") * (len(parts) > 1))',
  )
)


def advice(path: pathlib.Path) -> str:
  """Says what to do with a file that is pickled by its name; "" if it is not."""
  if path.suffix not in SUFFIXES:
    return ""
  result = path.with_name("model.safetensors") if path.name in NAMES else _with_suffix(path)
  code = f"source, result = {_literal(path)}, {_literal(result)}; {_PROGRAM}"
  return (
    f"{path} is pickled, and pickles are never read, because they can run any code. To convert it "
    "(of several models in it, the moving average or the teacher, and it says which), on a machine "
    f"with torch: python -c {shlex.quote(code)}"
  )


def _literal(path: pathlib.Path) -> str:
  """The path as Python writes it, in double quotes, which need no escapes in a shell."""
  return json.dumps(str(path), ensure_ascii=False)


def advice_in(folder: pathlib.Path) -> str:
  """As `advice`, of the pickled weights in a folder; "" if there are none."""
  there = (folder / name for name in NAMES)
  return next((advice(path) for path in there if path.is_file()), "")


def _with_suffix(path: pathlib.Path) -> pathlib.Path:
  while path.suffix in SUFFIXES:  # checkpoint.pth.tar
    path = path.with_suffix("")
  return path.with_name(f"{path.name}.safetensors")
