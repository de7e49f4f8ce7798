"""Take storage options from the session's Hadoop configuration: what opens `s3a://` for Spark opens it for the log.

`fs.s3a.*`, `fs.azure.*` and `fs.gs.*` become the options of the object store. A setting that says how to log in and has
no equivalent is an error that names it: silence would mean other credentials than the user's.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headwater.errors import InvalidUriError
from headwater.features.context import TableRef
from headwater.spark.functions import is_connect
from headwater.spark.jvm import jvm_of
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from pyspark.sql import SparkSession

    from headwater.spark.jvm import JavaObject
    from headwater.storage.uri import StoreUri


def session_table(
    spark: SparkSession,
    location: str | PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    hadoop_options: Mapping[str, str] | None = None,
) -> TableRef:
    """Return a reference to a table, with the options of its store.

    Args:
        spark: the session.
        location: a path or URI.
        storage_options: options of the object store; where they are given, the session is not asked.
        hadoop_options: settings such as `fs.s3a.access.key` for this table alone, before those of the session.
    """
    if storage_options is not None or is_connect(spark):
        return TableRef(location, storage_options)
    place = parse_uri(location)
    if place.kind not in _READERS:
        return TableRef(location)
    prefixes = _PREFIXES[place.kind]
    return TableRef(
        location, _READERS[place.kind](place, _Configuration(spark, prefixes, hadoop_options or {})) or None
    )


_PREFIXES = {"s3": ("fs.s3a.",), "azure": ("fs.azure.",), "gcs": ("fs.gs.", "google.cloud.auth.")}


class _Configuration:
    """Hadoop's configuration of one kind of store."""

    def __init__(self, spark: SparkSession, prefixes: tuple[str, ...], own: Mapping[str, str]) -> None:
        jvm = jvm_of(spark)
        self._hadoop = spark._jsparkSession.sessionState().newHadoopConf()
        for name, value in own.items():
            self._hadoop.set(name, value)
        mapper = jvm.kept("json mapper", lambda: jvm.static("com.fasterxml.jackson.databind.ObjectMapper")())
        self.names: set[str] = set()
        for prefix in prefixes:
            found: dict[str, str] = json.loads(mapper.writeValueAsString(self._hadoop.getPropsWithPrefix(prefix)))
            self.names |= {prefix + name for name in found}

    def get(self, *names: str) -> str | None:
        """Return the value of the first of some settings that is set."""
        for name in names:
            if name in self.names:
                value = self._hadoop.get(name)
                if value is not None and value.strip():
                    return str(value).strip()
        return None

    def secret(self, *names: str) -> str | None:
        """Return a secret: from a credential provider of Hadoop, or from the configuration."""
        for name in names:
            found: JavaObject = self._hadoop.getPassword(name)
            if found is not None:
                text = "".join(found)
                if text:
                    return text
        return None


# --- S3 -----------------------------------------------------------------------------------------------

_KEYS = {"SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider", "BasicAWSCredentialsProvider"}
_FROM_ENVIRONMENT = {
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
}
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_ENCRYPTION = {"SSE-S3": "AES256", "AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}


def _s3(place: StoreUri, conf: _Configuration) -> dict[str, str]:
    def names(setting: str) -> tuple[str, str]:
        return f"fs.s3a.bucket.{place.bucket}.{setting}", f"fs.s3a.{setting}"

    options = _s3_credentials(conf, names)
    endpoint = conf.get(*names("endpoint"))
    if endpoint is not None:
        plain = (conf.get(*names("connection.ssl.enabled")) or "true").lower() == "false"
        if "://" not in endpoint:
            endpoint = f"{'http' if plain else 'https'}://{endpoint}"
        options["endpoint"] = endpoint
        if endpoint.startswith("http://"):
            options["allow_http"] = "true"
    region = conf.get(*names("endpoint.region"))
    if region is not None:
        options["region"] = region
    path_style = conf.get(*names("path.style.access"))
    if path_style is not None:
        options["virtual_hosted_style_request"] = "false" if path_style.lower() == "true" else "true"
    if (conf.get(*names("requester.pays.enabled")) or "").lower() == "true":
        options["request_payer"] = "true"
    return {**options, **_s3_encryption(conf, names), **_proxy(conf, names)}


def _s3_credentials(conf: _Configuration, names: Callable[[str], tuple[str, str]]) -> dict[str, str]:
    providers = [p.strip() for p in (conf.get(*names("aws.credentials.provider")) or "").split(",") if p.strip()]
    kinds = [provider.rpartition(".")[2].rpartition("$")[2] for provider in providers]
    for provider, kind in zip(providers, kinds, strict=True):
        if kind not in _KEYS | _FROM_ENVIRONMENT | {_ANONYMOUS}:
            raise InvalidUriError(
                f"the session logs in to S3 by {provider} (fs.s3a.aws.credentials.provider), and Headwater has no such "
                "way: give storage_options with the keys, or use one of the providers of keys, of the environment, of "
                "instance profiles or of web identities."
            )
    uses_keys = not kinds or not _KEYS.isdisjoint(kinds)
    key, secret = conf.secret(*names("access.key")), conf.secret(*names("secret.key"))
    if uses_keys and key is not None and secret is not None:
        token = conf.secret(*names("session.token"))
        keys = {"access_key_id": key, "secret_access_key": secret}
        return keys if token is None else {**keys, "session_token": token}
    return {"skip_signature": "true"} if kinds == [_ANONYMOUS] else {}


def _s3_encryption(conf: _Configuration, names: Callable[[str], tuple[str, str]]) -> dict[str, str]:
    algorithm = conf.get(*names("encryption.algorithm"), *names("server-side-encryption-algorithm"))
    if algorithm is None:
        return {}
    known = _ENCRYPTION.get(algorithm.upper())
    if known is None:
        raise InvalidUriError(
            f"the session encrypts objects of S3 by {algorithm} (fs.s3a.encryption.algorithm), which Headwater cannot: "
            f"use one of {', '.join(_ENCRYPTION)}."
        )
    key = conf.secret(*names("encryption.key"), *names("server-side-encryption.key"))
    options = {"server_side_encryption": known}
    return options if key is None or known == "AES256" else {**options, "sse_kms_key_id": key}


def _proxy(conf: _Configuration, names: Callable[[str], tuple[str, str]]) -> dict[str, str]:
    host, port = conf.get(*names("proxy.host")), conf.get(*names("proxy.port"))
    if host is None:
        return {}
    return {"proxy_url": f"http://{host}:{port}" if port is not None else f"http://{host}"}


# --- Azure --------------------------------------------------------------------------------------------


def _azure(place: StoreUri, conf: _Configuration) -> dict[str, str]:
    def names(setting: str) -> tuple[str, ...]:
        return (f"{setting}.{place.account_host}", setting) if place.account_host else (setting,)

    kind = (conf.get(*names("fs.azure.account.auth.type")) or "").lower()
    key = conf.secret(*names("fs.azure.account.key")[:1])
    if kind in ("", "sharedkey"):
        return {} if key is None else {"account_key": key}
    if kind == "sas":
        token = conf.secret(
            f"fs.azure.sas.fixed.token.{place.account_host}",
            "fs.azure.sas.fixed.token",
            f"fs.azure.sas.{place.bucket}.{place.account_host}",
        )
        if token is not None:
            return {"sas_key": token}
        raise _no_equivalent("fs.azure.sas.token.provider.type", "a fixed token (fs.azure.sas.fixed.token)")
    if kind == "oauth":
        return _azure_oauth(conf, names)
    raise _no_equivalent("fs.azure.account.auth.type", "SharedKey, SAS or OAuth")


def _azure_oauth(conf: _Configuration, names: Callable[[str], tuple[str, ...]]) -> dict[str, str]:
    provider = (conf.get(*names("fs.azure.account.oauth.provider.type")) or "").rpartition(".")[2]
    client = conf.secret(*names("fs.azure.account.oauth2.client.id"))
    options = {} if client is None else {"client_id": client}
    if provider == "ClientCredsTokenProvider":
        secret = conf.secret(*names("fs.azure.account.oauth2.client.secret"))
        endpoint = conf.get(*names("fs.azure.account.oauth2.client.endpoint")) or ""
        parts = urlsplit(endpoint)
        tenant = parts.path.strip("/").split("/")[0]
        if secret is None or not tenant or client is None:
            raise InvalidUriError(
                "the session logs in to Azure by OAuth, and fs.azure.account.oauth2.client.id, ...client.secret or "
                "...client.endpoint is missing."
            )
        authority = {"authority_host": f"{parts.scheme}://{parts.netloc}"}
        return {**options, "client_secret": secret, "tenant_id": tenant, **authority}
    tenant_setting = conf.get(*names("fs.azure.account.oauth2.msi.tenant"))
    if tenant_setting is not None:
        options["tenant_id"] = tenant_setting
    if provider == "MsiTokenProvider":
        return options
    if provider == "WorkloadIdentityTokenProvider":
        file = conf.get(*names("fs.azure.account.oauth2.token.file"))
        return options if file is None else {**options, "federated_token_file": file}
    raise _no_equivalent(
        "fs.azure.account.oauth.provider.type", "client credentials, managed identities or workload identities"
    )


# --- Google -------------------------------------------------------------------------------------------

_KEY_FILES = ("google.cloud.auth.service.account.json.keyfile", "fs.gs.auth.service.account.json.keyfile")
_AUTH_TYPES = ("google.cloud.auth.type", "fs.gs.auth.type")


def _google(_: StoreUri, conf: _Configuration) -> dict[str, str]:
    kind = (conf.get(*_AUTH_TYPES) or "").upper()
    if kind == "UNAUTHENTICATED":
        return {"skip_signature": "true"}
    if kind in ("", "SERVICE_ACCOUNT_JSON_KEYFILE"):
        file = conf.get(*_KEY_FILES)
        return {} if file is None else {"service_account": file}
    if kind in ("APPLICATION_DEFAULT", "COMPUTE_ENGINE"):
        return {}
    raise _no_equivalent(_AUTH_TYPES[1], "a key file, the application default or the compute engine")


def _no_equivalent(setting: str, known: str) -> InvalidUriError:
    return InvalidUriError(
        f"the session's Hadoop setting {setting} has no equivalent in Headwater, which knows {known}. Give "
        "storage_options, or change the setting."
    )


_READERS: dict[str, Callable[[StoreUri, _Configuration], dict[str, str]]] = {"s3": _s3, "azure": _azure, "gcs": _google}
"""How the settings of each kind of store are read."""

_HADOOP_OPTION = re.compile(r"(?:fs|dfs)\.", re.I)


def hadoop_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return those of a read's or write's options that are settings of Hadoop."""
    return {name: str(value) for name, value in options.items() if _HADOOP_OPTION.match(name)}
