"""S3 and what speaks like it, through s3fs.

Of s3fs we take the session, its thread and its uploads. Listings are paged here, since `find` and `ls` gather a whole
listing before they give any of it, and downloads are made here, since `get` loses the ETag of what it read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aiohttp import ClientError as ConnectionTrouble
from aiohttp import ClientPayloadError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ResponseStreamingError,
)
from botocore.parsers import ResponseParserError
from fsspec.asyn import get_loop, sync
from s3fs import S3FileSystem

from pipelines.errors import ConfigurationError, GristmillError, PermanentError, RetryableError, UnavailableError
from worker.object_store import Stored, bucket_and_prefix, too_large

ATTEMPTS = 3
"""Of each request, with short pauses between; longer waits are for whoever tries again later."""

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
PIECE_BYTES = 2**20

PART_BYTES = 8 * 2**20
PARTS_AT_ONCE = 2
"""An upload holds so many parts in memory."""

REMEDY = "allow s3:ListBucket and s3:GetObject to this key; for a spool also s3:PutObject and s3:DeleteObject"

_ABSENT = {"NoSuchKey", "NoSuchVersion", "404"}
_DENIED = {"AccessDenied", "AllAccessDisabled", "403"}
_BUSY = {"SlowDown", "ServiceUnavailable", "TooManyRequests", "RequestLimitExceeded", "Throttling", "503", "429"}
_WRONG = {
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidBucketName",
    "InvalidToken",
    "NoSuchBucket",
    "PermanentRedirect",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "301",
}
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, ProfileNotFound)


class S3Store:
    """A bucket, or what lies under a prefix in it. See `ObjectStore`."""

    def __init__(
        self,
        url: str,
        *,
        endpoint_url: str | None,
        key: str | None,
        secret: str | None,
        region: str | None,
        anonymous: bool,
    ) -> None:
        self._url = url
        self._bucket, self._prefix = bucket_and_prefix(url)
        self._fs = S3FileSystem(
            anon=anonymous,
            endpoint_url=endpoint_url,
            key=key,
            secret=secret,
            client_kwargs={"region_name": region} if region else {},
            config_kwargs={
                "connect_timeout": CONNECT_SECONDS,
                "read_timeout": READ_SECONDS,
                "retries": {"total_max_attempts": ATTEMPTS, "mode": "standard"},
                # Not everything that speaks S3 knows the checksums that Amazon's came to have in 2024.
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
            use_listings_cache=False,
            skip_instance_cache=True,
            # Its coroutines are run on fsspec's thread as ever; so it leaves the end of the session to us.
            asynchronous=True,
        )
        self._fs.retries = 1  # botocore's are enough

    def listing(self) -> Iterator[Stored]:
        """See `ObjectStore`. Keys that stand for folders (empty ones that end in a slash) are left out."""
        token: str | None = None
        tokens: set[str] = set()
        while True:
            more = {"ContinuationToken": token} if token else {}
            page = self._run(self._call, "list_objects_v2", Prefix=self._prefix, **more)
            for entry in page.get("Contents", ()):
                key, size = entry["Key"], entry["Size"]
                name = key.removeprefix(self._prefix)
                if key.startswith(self._prefix) and name and not (size == 0 and name.endswith("/")):
                    yield Stored(name, size, entry.get("LastModified"), _etag(entry))
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token in tokens:
                raise RetryableError(
                    "listing_broken", f"{self._url} says that its listing goes on, but not where", "try again later"
                )
            tokens.add(token)

    def look(self, name: str) -> Stored | None:
        """See `ObjectStore`."""
        try:
            head = self._run(self._call, "head_object", Key=self._prefix + name)
        except FileNotFoundError:
            return None
        return Stored(name, head["ContentLength"], head.get("LastModified"), _etag(head))

    def download(
        self, name: str, path: Path, *, max_bytes: int | None = None, unless: str | None = None
    ) -> Stored | None:
        """See `ObjectStore`."""
        found: Stored | None = self._run(self._download, name, path, max_bytes, unless)
        return found

    def upload(self, path: Path, name: str) -> None:
        """See `ObjectStore`; a large file goes in parts."""
        place = f"{self._bucket}/{self._prefix}{name}"
        self._run(
            self._fs._put_file,
            str(path),
            place,
            chunksize=PART_BYTES,
            max_concurrency=PARTS_AT_ONCE,
            ContentType="application/octet-stream",
        )

    def remove(self, name: str) -> None:
        """See `ObjectStore`."""
        self._run(self._call, "delete_object", Key=self._prefix + name)

    def close(self) -> None:
        """See `ObjectStore`."""
        if self._fs._s3 is not None:
            sync(get_loop(), self._fs._s3creator.__aexit__, None, None, None, timeout=CONNECT_SECONDS)
            self._fs._s3 = None

    def _run(self, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine on fsspec's thread, with its errors in our words."""
        try:
            return sync(get_loop(), function, *args, **kwargs)
        except GristmillError:
            raise
        except Exception as error:
            if (meant := self._meaning(error)) is None:
                raise
            raise meant from error

    async def _call(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await self._fs._call_s3(method, Bucket=self._bucket, **arguments)
        return answer

    async def _download(self, name: str, path: Path, max_bytes: int | None, unless: str | None) -> Stored | None:
        condition = {"IfNoneMatch": f'"{unless}"'} if unless else {}
        try:
            answer = await self._call("get_object", Key=self._prefix + name, **condition)
        except Exception as error:
            if unless and _status(error) == 304:
                return None
            refusal = _refusal(error)
            if refusal and _status(error) == 404 and refusal.get("Error", {}).get("Code", "") in ("", "404"):
                # A store names the error in a document of its own: this is of a proxy, or of another server.
                raise RetryableError(
                    "store_failed", f"{self._url} answers 404 as no store does", "check the endpoint"
                ) from error
            raise
        taken = 0
        async with answer["Body"] as body:
            if max_bytes is not None and answer.get("ContentLength", 0) > max_bytes:
                raise too_large(name, max_bytes)
            with path.open("wb") as file:
                async for piece in body.iter_chunks(PIECE_BYTES):
                    taken += len(piece)
                    if max_bytes is not None and taken > max_bytes:
                        raise too_large(name, max_bytes)
                    file.write(piece)
        return Stored(name, taken, answer.get("LastModified"), _etag(answer))

    def _meaning(self, error: Exception) -> Exception | None:
        """An error of s3fs or botocore in our terms; None for one that is not theirs."""
        if isinstance(error, _NO_CREDENTIALS):
            return ConfigurationError(
                "store_credentials", f"there are no credentials for {self._url}", "set AWS_ACCESS_KEY_ID and its secret"
            )
        if isinstance(error, ParamValidationError | ValueError):
            said = " ".join(str(error).split())[:200]
            return ConfigurationError("store_url", f"{self._url} cannot be asked: {said}", "correct the URL")
        if isinstance(error, ResponseStreamingError | IncompleteReadError | ClientPayloadError):
            return RetryableError("broken_off", f"{self._url} broke off in the middle", "try again later")
        if isinstance(error, BotoCoreError | ResponseParserError | ConnectionTrouble | TimeoutError):
            return UnavailableError(
                "store_unavailable",
                f"{self._url} does not answer: {_first_line(error)}",
                "check the endpoint and the network",
            )
        refusal = _refusal(error)
        return None if refusal is None else self._refused(refusal, _status(error))

    def _refused(self, refusal: Mapping[str, Any], status: int) -> Exception:
        code, said = str(refusal.get("Error", {}).get("Code", "")), refusal.get("Error", {}).get("Message", "")
        if code in _WRONG:
            return ConfigurationError(
                "store_refuses", f"{self._url}: {code}: {said}", "correct the bucket, the region or the credentials"
            )
        if code == "InvalidObjectState":
            return PermanentError("archived", "the object lies in an archive", "restore it, or leave it out")
        if code in _DENIED or status == 403:
            return PermanentError("access_denied", f"{self._url}: access is denied", REMEDY)
        if code in _ABSENT or status == 404:
            return FileNotFoundError(f"{self._url}: {code}")
        if code in _BUSY or status in (429, 503):
            wait = str(refusal.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("retry-after", ""))
            return UnavailableError(
                "store_busy",
                f"{self._url} asks to wait: {code or status}",
                "try again later",
                retry_after=float(wait) if wait.isdecimal() else None,
            )
        return RetryableError("store_failed", f"{self._url} answers {status} {code}: {said}", "try again later")


def _refusal(error: BaseException | None) -> Mapping[str, Any] | None:
    """The store's own words, which s3fs leaves behind as the cause of its errors."""
    while error is not None and not isinstance(error, ClientError):
        error = error.__cause__
    return None if error is None else error.response


def _status(error: BaseException) -> int:
    refusal = _refusal(error)
    return 0 if refusal is None else int(refusal.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _etag(answer: Mapping[str, Any]) -> str | None:
    return str(answer.get("ETag", "")).removeprefix("W/").strip('"') or None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
