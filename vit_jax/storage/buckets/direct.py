"""Reads parts of objects by connections that stay open.

The libraries of the services need about a millisecond of a core for a request, and no other thread
runs meanwhile: in that time an image could be decoded. So they are asked for the address and the
credentials alone, and for all that does not succeed at once.
"""

import collections
import contextlib
import functools
import http.client
import itertools
import ssl
import urllib.parse
import urllib.request
import weakref
from collections.abc import Iterator, Mapping

_SECONDS = 30  # to connect, and to wait for the next bytes
_READ = (200, 206)  # the whole, or a part


class Direct:
  """The connections to the servers of a service, as many as there are reads at once."""

  def __init__(self):
    """Connects to nothing yet."""
    self._idle = collections.defaultdict(collections.deque)  # by the server
    weakref.finalize(self, _close, self._idle)
    self._proxies = urllib.request.getproxies().keys() & {"http", "https", "all"}

  def read(self, url: str, headers: Mapping[str, str], size: int) -> bytes | None:
    """A part of an object; None: not this time, and the library of the service may find out why.

    Args:
      url: of the object, with the credentials, if they are not in the headers.
      headers: say which part, of which version.
      size: of the part, bytes.
    """
    if self._proxies:  # which only the libraries know to use
      return None
    address = urllib.parse.urlsplit(url)
    try:
      with self._connection(address.scheme, address.netloc) as connection:
        connection.request("GET", f"{address.path}?{address.query}", headers=headers)
        with connection.getresponse() as answer:
          content = answer.read()
    except (OSError, http.client.HTTPException):
      return None
    return content if answer.status in _READ and len(content) == size else None

  @contextlib.contextmanager
  def _connection(self, scheme: str, server: str) -> Iterator[http.client.HTTPConnection]:
    """A connection that nobody else uses; it is kept, or closed after an error."""
    try:
      connection = self._idle[server].pop()
    except IndexError:
      connection = self._new(scheme, server)
    try:
      yield connection
    except BaseException:
      connection.close()
      raise
    self._idle[server].append(connection)

  def _new(self, scheme: str, server: str) -> http.client.HTTPConnection:
    if scheme == "http":
      return http.client.HTTPConnection(server, timeout=_SECONDS)
    return http.client.HTTPSConnection(server, timeout=_SECONDS, context=self._context)

  @functools.cached_property
  def _context(self) -> ssl.SSLContext:
    return ssl.create_default_context()


def _close(idle: Mapping[str, collections.deque]):
  """Closes all connections; Python warns of those that are left open."""
  for connection in itertools.chain(*idle.values()):
    connection.close()
