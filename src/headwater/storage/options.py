"""Storage options: the names that users of deltalake and object_store know, checked by name.

A name may carry its provider's prefix or not, in either case: `AWS_REGION`, `aws_region` and `region` are one
option. The usual environment variables of the same names apply where an option is not given.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from headwater.errors import InvalidUriError

_PREFIXES: Final = {
    "s3": ("aws_",),
    "azure": ("azure_storage_", "azure_"),
    "gcs": ("google_",),
}
_OPTIONS: Final = {
    "s3": frozenset(
        {
            "access_key_id",
            "checksum_algorithm",
            "conditional_put",
            "container_authorization_token_file",
            "container_credentials_full_uri",
            "container_credentials_relative_uri",
            "copy_if_not_exists",
            "default_region",
            "disable_bulk_delete",
            "disable_tagging",
            "endpoint",
            "endpoint_url_s3",
            "endpoint_url_sts",
            "imdsv1_fallback",
            "metadata_endpoint",
            "region",
            "request_payer",
            "role_arn",
            "role_session_name",
            "s3_express",
            "secret_access_key",
            "server_side_encryption",
            "session_token",
            "skip_signature",
            "sse_bucket_key_enabled",
            "sse_customer_key_base64",
            "sse_kms_key_id",
            "unsigned_payload",
            "virtual_hosted_style_request",
            "web_identity_token_file",
        }
    ),
    "azure": frozenset(
        {
            "account_key",
            "account_name",
            "authority_host",
            "client_id",
            "client_secret",
            "credential_type",
            "disable_tagging",
            "encryption_key",
            "endpoint",
            "fabric_cluster_identifier",
            "fabric_session_token",
            "fabric_token_service_url",
            "fabric_workload_host",
            "federated_token_file",
            "msi_endpoint",
            "msi_resource_id",
            "object_id",
            "sas_key",
            "skip_signature",
            "tenant_id",
            "token",
            "use_azure_cli",
            "use_emulator",
            "use_fabric_endpoint",
        }
    ),
    "gcs": frozenset(
        {
            "application_credentials",
            "base_url",
            "bearer_token",
            "service_account",
            "service_account_key",
            "skip_signature",
        }
    ),
}
_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)
_ALIASES: Final = {
    "s3": {"endpoint_url": "endpoint", "token": "session_token", "sts_endpoint": "endpoint_url_sts"},
    "azure": {
        "access_key": "account_key",
        "master_key": "account_key",
        "authority_id": "tenant_id",
        "bearer_token": "token",
        "identity_endpoint": "msi_endpoint",
        "sas_token": "sas_key",
    },
    "gcs": {"service_account_path": "service_account"},
}
_INSTEAD: Final = {
    "allow_unsafe_rename": "it is not needed: commits are conditional puts",
    "s3_allow_unsafe_rename": "it is not needed: commits are conditional puts",
    "s3_locking_provider": "it is not needed: commits are conditional puts, not locks in DynamoDB",
    "bucket": "the bucket is part of the table's URI",
    "bucket_name": "the bucket is part of the table's URI",
    "container_name": "the container is part of the table's URI",
    "profile": "profiles are not read: pass the access key, or set the AWS_ environment variables",
    "connection_string": "pass account_name and account_key instead",
}
# What obstore itself calls these, where the name without a prefix is not one it knows.
_OBSTORE_NAME: Final = {("s3", "endpoint_url_s3"): "aws_endpoint_url_s3"}


def obstore_config(kind: str, options: Mapping[str, object] | None) -> dict[str, Any]:
    """The options as the configuration of an obstore store.

    Options of the HTTP client go into the same configuration: obstore's separate client options would switch
    off those that come from the environment.

    >>> obstore_config("s3", {"AWS_REGION": "eu-west-1", "aws_allow_http": True})
    {'region': 'eu-west-1', 'allow_http': 'true'}

    Args:
        kind: the kind of store, "s3", "azure" or "gcs".
        options: as the user gave them.

    Raises:
        InvalidUriError: an option is unknown, is given twice with different values, or has no usable value.
    """
    if not isinstance(options, Mapping | None):
        raise InvalidUriError(f"storage_options is a mapping of names to values, not {type(options).__name__}")
    config: dict[str, Any] = {}
    for name, value in (options or {}).items():
        known = _canonical(kind, name)
        text = _text(name, value)
        if config.setdefault(known, text) != text:
            raise InvalidUriError(f"the storage option {name!r} is given twice, with different values")
    return {_OBSTORE_NAME.get((kind, known), known): text for known, text in config.items()}


def refuse_options(uri: str, options: Mapping[str, object] | None) -> None:
    """Refuse any option for a store that has none.

    Raises:
        InvalidUriError: there is an option.
    """
    if options:
        names = ", ".join(repr(name) for name in options)
        raise InvalidUriError(f"{uri} takes no storage options, but was given {names}")


def _canonical(kind: str, name: object) -> str:
    """The option's one name; raises with near matches if there is no such option."""
    if not isinstance(name, str):
        raise InvalidUriError(f"the name of a storage option is a string, not {name!r}")
    bare = name.lower()
    for prefix in _PREFIXES[kind]:
        if bare.startswith(prefix):
            bare = bare.removeprefix(prefix)
            break
    known = _ALIASES[kind].get(bare, bare)
    if known in _OPTIONS[kind] or known in _CLIENT_OPTIONS:
        return known
    raise InvalidUriError(_unknown(kind, name, bare))


def _unknown(kind: str, name: str, bare: str) -> str:
    if bare in _INSTEAD:
        return f"the storage option {name!r} is not supported: {_INSTEAD[bare]}"
    own = {*_OPTIONS[kind], *_ALIASES[kind]}
    spelled = {option: (_PREFIXES[kind][0] if option in own else "") + option for option in own | _CLIENT_OPTIONS}
    close = difflib.get_close_matches(bare, spelled, n=3)
    hint = " or ".join(spelled[option] for option in close)
    return f"unknown storage option {name!r}" + (f": did you mean {hint}?" if hint else f" for {kind}")


def _text(name: str, value: object) -> str:
    """The value as text. It is not repeated in messages, because it may be a secret."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidUriError(
        f"the storage option {name!r} has a value of type {type(value).__name__}: "
        "it has to be a string, a number or a boolean, or be left out"
    )
