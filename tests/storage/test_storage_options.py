"""Option names: all that object_store knows, in every spelling, and nothing else."""

from __future__ import annotations

import pytest
from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, S3Store

from headwater.errors import InvalidUriError
from headwater.storage import open_store
from headwater.storage.option_names import CLIENT_OPTIONS, OPTIONS
from headwater.storage.options import obstore_config

STORES = {"s3": S3Store, "azure": AzureStore, "gcs": GCSStore}


@pytest.mark.parametrize("kind", STORES)
def test_every_option_is_one_that_obstore_knows(kind: str) -> None:
    for name in sorted(OPTIONS[kind] | CLIENT_OPTIONS):
        config = obstore_config(kind, {name: "1"})
        assert len(config) == 1
        try:
            STORES[kind]("bucket", config=config)
        except UnknownConfigurationKeyError:
            pytest.fail(f"obstore does not know {name} for {kind}")
        except (BaseError, ValueError):
            pass  # it knows the name; the value, or what else is missing, is not what this is about


@pytest.mark.parametrize(
    ("kind", "names", "known"),
    [
        ("s3", ["AWS_ACCESS_KEY_ID", "aws_access_key_id", "Access_Key_Id"], "access_key_id"),
        ("s3", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "endpoint_url", "endpoint"], "endpoint"),
        ("s3", ["AWS_SESSION_TOKEN", "aws_token", "token"], "session_token"),
        ("s3", ["AWS_ENDPOINT_URL_S3"], "aws_endpoint_url_s3"),
        ("s3", ["AWS_ALLOW_HTTP", "allow_http"], "allow_http"),
        ("azure", ["AZURE_STORAGE_ACCOUNT_NAME", "azure_account_name", "account_name"], "account_name"),
        ("azure", ["AZURE_STORAGE_ACCESS_KEY", "azure_storage_master_key", "account_key"], "account_key"),
        ("azure", ["AZURE_STORAGE_SAS_TOKEN", "sas_key"], "sas_key"),
        ("azure", ["AZURE_TENANT_ID", "azure_storage_authority_id"], "tenant_id"),
        ("azure", ["azure_allow_http"], "allow_http"),
        (
            "gcs",
            ["GOOGLE_SERVICE_ACCOUNT", "google_service_account_path", "service_account"],
            "service_account",
        ),
        ("gcs", ["GOOGLE_APPLICATION_CREDENTIALS"], "application_credentials"),
    ],
)
def test_spellings_of_one_option(kind: str, names: list[str], known: str) -> None:
    for name in names:
        assert obstore_config(kind, {name: "value"}) == {known: "value"}
    assert obstore_config(kind, dict.fromkeys(names, "value")) == {known: "value"}


def test_values_become_text() -> None:
    given = {"allow_http": True, "disable_tagging": False, "pool_max_idle_per_host": 3, "region": "eu"}
    assert obstore_config("s3", given) == {
        "allow_http": "true",
        "disable_tagging": "false",
        "pool_max_idle_per_host": "3",
        "region": "eu",
    }


def test_no_options_are_fine() -> None:
    assert obstore_config("s3", None) == obstore_config("s3", {}) == {}


@pytest.mark.parametrize(
    ("uri", "name", "hint"),
    [
        ("s3://bucket/t", "AWS_ACESS_KEY_ID", "aws_access_key_id"),
        ("s3://bucket/t", "aws_regoin", "aws_region"),
        ("s3://bucket/t", "alow_http", "allow_http"),
        ("s3://bucket/t", "AWS_S3_ALLOW_UNSAFE_RENAME", "not needed"),
        ("s3://bucket/t", "AWS_S3_LOCKING_PROVIDER", "DynamoDB"),
        ("s3://bucket/t", "AWS_PROFILE", "AWS_ environment variables"),
        ("s3://bucket/t", "aws_bucket", "part of the table's URI"),
        ("s3://bucket/t", "azure_storage_account_name", "unknown storage option"),
        ("az://container/t", "azure_storage_acount_name", "azure_storage_account_name"),
        ("az://container/t", "azure_storage_connection_string", "account_name and account_key"),
        ("gs://bucket/t", "GOOGLE_SERVICE_ACOUNT", "google_service_account"),
        ("gs://bucket/t", "zzz", "for gcs"),
    ],
)
def test_unknown_option_is_named_with_a_hint(uri: str, name: str, hint: str) -> None:
    with pytest.raises(InvalidUriError, match=name) as caught:
        open_store(uri, {name: "secret value"})
    assert hint in str(caught.value)
    assert "secret value" not in str(caught.value)


@pytest.mark.parametrize("uri", ["/tmp/t", "file:///tmp/t", "memory://name/t"])
def test_stores_without_options_refuse_them(uri: str) -> None:
    with pytest.raises(InvalidUriError, match="'aws_region'"):
        open_store(uri, {"aws_region": "eu"})
    open_store(uri, {})


def test_two_spellings_with_two_values_are_refused() -> None:
    with pytest.raises(InvalidUriError, match=r"'region'.*twice"):
        obstore_config("s3", {"AWS_REGION": "eu", "region": "us"})


@pytest.mark.parametrize("value", [None, ["a"], 1.5, b"x"])
def test_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidUriError, match=r"'aws_region'.*type"):
        obstore_config("s3", {"aws_region": value})


def test_options_that_are_no_mapping_or_have_no_names_are_refused() -> None:
    with pytest.raises(InvalidUriError, match="mapping"):
        obstore_config("s3", ["aws_region"])
    with pytest.raises(InvalidUriError, match="string"):
        obstore_config("s3", {1: "x"})
