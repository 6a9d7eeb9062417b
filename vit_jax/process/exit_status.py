"""The exit statuses of all commands."""

DONE = 0
FAILED = 1
WRONG_USAGE = 2  # a wrong command line, config or data; no device was touched
STOPPED = 75  # by a signal, with its state saved or nothing to save yet: start it again
MISCOMPUTED = 76  # a device computed a step wrongly; nothing of that step was saved
INTERRUPTED = 130  # by Ctrl-C at once; what shells report after SIGINT
