"""Map foreign exceptions (`OSError`, those of obstore) to ours, and repeat requests that may succeed later.

obstore reports most failures as one generic class whose text holds the HTTP status and the store's error code, so the
kind is read from these. A transient failure (throttling, a 5xx, no answer) becomes `StorageThrottledError`. Only those
are repeated, with exponential backoff and full jitter. The stores' own retries are switched off, so that a caller knows
whether an earlier attempt may have reached the store.
"""

from __future__ import annotations

import errno
import random
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from headwater.errors import (
    InvalidUriError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageRefusedError,
    StorageThrottledError,
)
from headwater.storage.redaction import redacted, secrets_in, shown_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_NOT_FOUND: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NOTHING_DONE: Final = (_NOT_FOUND - {errno.ENOENT}) | {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EEXIST, errno.EMFILE, errno.ENFILE),
}
_OS_ADVICE: Final = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "the file system is mounted read-only",
    errno.EMFILE: "this process has too many open files",
}


def from_os_error(error: OSError, doing: str, what: str, *, writing: bool = False) -> StorageError:
    """Return the error for a failed system call.

    Args:
        error: what the system said.
        doing: the verb for the message, as in "could not {doing} {what}".
        what: the path for the message.
        writing: a missing object is the answer to a read, but only a failure of a write.
    """
    number = error.errno or 0
    reason = error.strerror or str(error)
    advice = _OS_ADVICE.get(number)
    message = f"could not {doing} {what}: {reason}{f' ({advice})' if advice else ''}"
    if number in _NOT_FOUND and not writing:
        return ObjectNotFoundError(message)
    if number in _REFUSED:
        return StoragePermissionError(message)
    return StorageRefusedError(message) if number in _NOTHING_DONE else StorageError(message)


# --- object stores ------------------------------------------------------------------------------------

_DEBUG: Final = "\n\nDebug source"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*(.*?)\s*</Message>", re.DOTALL)

_MAY_PASS_STATUS: Final = frozenset({408, 429, 500, 502, 503, 504})
_MAY_PASS_CODE: Final = frozenset(
    {
        "InternalError",
        "OperationTimedOut",
        "RequestTimeout",
        "ServerBusy",
        "ServiceUnavailable",
        "SlowDown",
        "TooManyRequests",
        # HTTP 409 of a conditional write that met another one in flight: nothing was written, ask again.
        "ConditionalRequestConflict",
        "OperationAborted",
    }
)
_NO_BUCKET_CODE: Final = frozenset({"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"})
_REFUSED_CODE: Final = frozenset(
    {
        "AccessDenied",
        "AuthenticationFailed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
    }
)
# Where credentials come from when none were given: instance metadata services and token requests.
_CREDENTIAL_SOURCE = re.compile(r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|token request")
_NO_ANSWER = re.compile(r"error sending request|body error|timed? ?out|connection (?:reset|closed)", re.IGNORECASE)
_TEXT_LIMIT: Final = 500


def from_obstore_error(
    error: Exception, doing: str, what: str, config: Mapping[str, object] | None = None
) -> StorageError:
    """Return the error for a failed request, or for a request that obstore refused to make.

    >>> error = Exception("Server returned non-2xx status code: 503 Service Unavailable: ")
    >>> type(from_obstore_error(error, "read", "s3://bucket/key")).__name__
    'StorageThrottledError'

    Args:
        error: what obstore raised.
        doing: the verb for the message, as in "could not {doing} {what}".
        what: the URI of the object for the message.
        config: the options of the store, whose secrets no message shows.
    """
    text = redacted(str(error).partition(_DEBUG)[0], secrets_in(config))
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = found[1] if (found := _CODE.search(text)) else ""
    message = f"could not {doing} {what}: {_reason(text, status, code)}"
    kind = type(error).__name__

    if status in _MAY_PASS_STATUS or code in _MAY_PASS_CODE:
        return StorageThrottledError(message)
    if _CREDENTIAL_SOURCE.search(text):
        return StoragePermissionError(f"{message}. No credentials were found: pass them as storage_options")
    if "builder error" in text:
        return StorageError(f"{message}. For an endpoint without TLS set the storage option 'allow_http' to true")
    if not status and _NO_ANSWER.search(text):
        return StorageThrottledError(message)
    if code in _NO_BUCKET_CODE:
        return StorageRefusedError(f"{message}. The bucket or container does not exist: create it, or check its name")
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(message)
    if kind == "AlreadyExistsError" and not (status == 409 and code not in ("", "BlobAlreadyExists")):
        return ObjectAlreadyExistsError(message)
    refused = kind in ("PermissionDeniedError", "UnauthenticatedError")
    if refused or status in (401, 403) or code in _REFUSED_CODE:
        return StoragePermissionError(message)
    # 409 and 412 speak of another request; what a store answers with 5xx it may have done all the same.
    is_refusal = 400 <= status < 500 and status not in (409, 412, 425, 499)
    return StorageRefusedError(message) if is_refusal else StorageError(message)


def from_setup_error(error: Exception, uri: str, config: Mapping[str, object]) -> InvalidUriError:
    """Return the error for options that are known by name, but that make no store."""
    text = redacted(str(error).partition(_DEBUG)[0], secrets_in(config))
    options = ", ".join(f"{name}={value}" for name, value in shown_options(config).items())
    given = f" ({options})" if options else ""
    return InvalidUriError(f"cannot open {uri} with these storage options{given} and environment variables: {text}")


def shown_cause(error: Exception, config: Mapping[str, object] | None) -> Exception:
    """The error as it may be shown below ours: itself, or where its text holds secrets, one like it that does not.

    Raise ours from it outside of the `except`, or Python keeps the original beside it.
    """
    text = str(error)
    clean = redacted(text, secrets_in(config))
    if clean == text:
        return error
    try:
        return type(error)(clean)
    except Exception:  # a class that is made in another way
        return StorageError(clean)


def _reason(text: str, status: int, code: str) -> str:
    """What the store said, in a line: the status, its code and message rather than the whole XML."""
    if not status:
        return _shorten(text)
    said = found[1] if (found := _MESSAGE.search(text)) else ""
    return _shorten(" ".join(filter(None, (f"the store answered {status}", code, f"({said})" if said else ""))))


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_LIMIT else line[:_TEXT_LIMIT] + "..."


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how long, a request is repeated.

    The n-th pause is drawn evenly between nothing and `first_delay_s * 2**(n-1)`, never more than
    `max_delay_s`: with the defaults at most 12.7 s in all. So writers that collided drift apart.

    Attributes:
        max_attempts: the first one included.
        first_delay_s: the upper bound of the first pause.
        max_delay_s: the upper bound of any pause.
        sleep: waits; replaced in tests.
        jitter: a number in [0, 1); replaced in tests.
    """

    max_attempts: int = 8
    first_delay_s: float = 0.1
    max_delay_s: float = 10.0
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts has to be at least 1, not {self.max_attempts}")

    def run(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it returns, fails for good, or `max_attempts` is reached.

        >>> RetryPolicy().run(lambda: 42)
        42
        """
        for number in range(1, self.max_attempts):
            try:
                return attempt()
            except StorageThrottledError:
                bound_s = min(self.first_delay_s * 2 ** (number - 1), self.max_delay_s)
                self.sleep(bound_s * self.jitter())
        try:
            return attempt()
        except StorageThrottledError as error:
            raise StorageThrottledError(f"{error} (gave up after {self.max_attempts} attempts)") from error
