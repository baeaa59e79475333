"""The configuration: layers, origins, refusals."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstfault.config import json_schema, load, reference, show
from firstfault.config.models import IDENTITY_LABELS, Config
from firstfault.errors import ConfigError, DeliveryError

ROOT = Path(__file__).parent.parent.parent


def write(folder: Path, text: str) -> Path:
    path = folder / "firstfault.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def faults(*args, **kwargs) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(*args, **kwargs)
    return [str(fault) for fault in caught.value.faults]


def test_nothing_given_is_a_valid_configuration():
    """Everything has a default, so that flags alone are enough."""
    config = load().config
    assert config.web.listen == "127.0.0.1:9465"
    assert (config.incidents.settle_quiet_secs, config.incidents.settle_max_secs, config.incidents.historic_after_secs) == (15, 90, 900)
    assert (config.alertmanager.resend_secs, config.alertmanager.ends_after_secs) == (60, 1800)


def test_flags_win_over_environment_over_file_over_default(tmp_path):
    """The same option given everywhere takes the flag's value, and each layer is used where the one above is silent."""
    path = write(tmp_path, "web: {listen: '1.1.1.1:1', lifecycle: true}\nlimits: {shutdown_secs: 3}\nlog: {level: debug}\n")
    environ = {"FIRSTFAULT_WEB__LISTEN": "2.2.2.2:2", "FIRSTFAULT_LIMITS__SHUTDOWN_SECS": "4"}
    loaded = load(path, environ, {"web.listen": ("--listen", "3.3.3.3:3")})
    config = loaded.config
    assert (config.web.listen, config.limits.shutdown_secs, config.log.level, config.web.lifecycle) == ("3.3.3.3:3", 4, "debug", True)
    assert str(loaded.origin(("web", "listen"))) == "flag --listen"
    assert str(loaded.origin(("limits", "shutdown_secs"))) == "environment variable FIRSTFAULT_LIMITS__SHUTDOWN_SECS"
    assert str(loaded.origin(("log", "level"))) == f"{path}:3"


def test_every_fault_is_listed_by_file_and_line(tmp_path):
    """One load shows all that is wrong, sorted by place."""
    path = write(
        tmp_path,
        "web:\n  lissten: 'x'\nsources:\n  files:\n    - include: []\n    - {include: [a], poll_ms: 1}\n"
        "incidents:\n  settle_max_secs: many\n",
    )
    found = faults(path)
    assert found[0] == f"{path}:2: unknown key 'lissten' in web; did you mean 'listen'?"
    assert found[1].startswith(f"{path}:5: sources.files[0].include:")
    assert found[2].startswith(f"{path}:6: sources.files[1].poll_ms:")
    assert found[2].endswith("(got 1)")
    assert found[3].startswith(f"{path}:8: incidents.settle_max_secs:")
    assert len(found) == 4


def test_a_key_in_the_wrong_place_is_told_where_it_belongs(tmp_path):
    """An option at the top level that exists in a section names the section."""
    assert "belongs in 'incidents'" in faults(write(tmp_path, "settle_max_secs: 3\n"))[0]


def test_a_key_given_twice_is_refused(tmp_path):
    """YAML would silently keep the last one."""
    assert faults(write(tmp_path, "web: {}\nlog: {}\nweb: {}\n"))[0].endswith(":3: key 'web' is already given in line 1; keep one of them")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("web: [", "is no YAML"),
        ("- a\n", "must hold settings"),
        ("web:\n  listen: nonsense\n", "write HOST:PORT"),
        ("web: {listen: '::1:80'}", "write [::1]:80"),
        ("sources: {files: [{include: [a], zone: Mars/Base}]}", "no time zone"),
        ("sources: {files: [{include: [a]}, {include: [b]}]}", "two sources are called 'files'"),
        ("redaction: {patterns: ['(']}", "no RE2 pattern"),
        ("jobs: {families: ['a+']}", "(?P<family>"),
        ("alertmanager: {targets: [{url: 'am:9093'}]}", "write it with its scheme"),
        ("alertmanager: {targets: [{url: 'http://a', bearer_token: a, bearer_token_file: b}]}", "exclude each other"),
        ("alertmanager: {targets: [{url: 'http://a', basic_auth: {username: u}}]}", "exactly one of password and password_file"),
        ("alertmanager: {targets: [{url: 'http://a', tls: {cert_file: c}}]}", "belong together"),
        ("alertmanager: {labels: {severity: high}}", "set by firstfault itself"),
        ("alertmanager: {labels: {'a-b': c}}", "no label name"),
        ("alertmanager: {resend_secs: 60, ends_after_secs: 90}", "at least twice resend_secs"),
        ("alertmanager: {targets: [{url: 'http://a', headers: {'A B': c}}]}", "no header name"),
        ("alertmanager: {targets: [{url: 'http://a', headers: {authorization: c}}]}", "set by firstfault itself"),
        ("alertmanager: {targets: [{url: 'http://a', headers: {X-A: c}, header_files: {x-a: f}}]}", "keep one"),
        ("alerts: {mutes: [{reason: quiet}]}", "mutes everything for ever"),
        ("alerts: {mutes: [{job: a, from_time: '22:00'}]}", "belong together"),
        ("alerts: {mutes: [{from_time: '25:00', to_time: '06:00'}]}", "no time of day"),
        ("alerts: {mutes: [{since: '2026-12-24T18:00:00'}]}", "says no zone"),
        ("alerts: {mutes: [{since: '2026-12-24T18:00:00Z', until: '2026-12-24T17:00:00Z'}]}", "is not after since"),
        ("alerts: {mutes: [{job: '('}]}", "no RE2 pattern"),
        ("alerts: {severities: [{job: a}]}", "alerts.severities[0].severity"),
        ("webhooks: {targets: [{url: 'http://a'}, {url: 'http://b'}]}", "two webhooks are called 'webhook'"),
        ("webhooks: {targets: [{url: 'http://a', secret: a, secret_file: b}]}", "exclude each other"),
        ("webhooks: {targets: [{url: 'http://a', kinds: []}]}", "webhooks.targets[0].kinds"),
        ("incidents: {settle_quiet_secs: 50, settle_max_secs: 20}", "is shorter than"),
    ],
)
def test_each_refusal_says_what_to_do(tmp_path, text, words):
    """A refused value is quoted or explained, never just called invalid."""
    assert any(words in fault for fault in faults(write(tmp_path, text)))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """A missing file and one that is no text are refused with their path."""
    assert "No such file" in faults(tmp_path / "absent.yaml")[0]
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"a: b\n\xff\xfe\n")
    assert ":2: is no UTF-8 text" in faults(path)[0]


def test_secrets_never_appear_in_messages_or_output(tmp_path):
    """A refused secret is not quoted and a shown one is blanked."""
    path = write(tmp_path, "alertmanager: {targets: [{url: 'http://a', bearer_token: s3cret, headers: {X: h1dden}}]}\n")
    text = show(load(path), resolved=True)
    assert "s3cret" not in text
    assert "h1dden" not in text
    assert "<hidden>" in text
    broken = write(tmp_path, "alertmanager: {targets: [{url: 'http://a', bearer_token: [s3cret]}]}\n")
    assert not any("s3cret" in fault for fault in faults(broken))


def test_environment_reaches_into_lists_and_keeps_text_as_text():
    """Numbers in a name are list positions; a text option takes 123 and true as they are."""
    environ = {
        "FIRSTFAULT_SOURCES__FILES__0__INCLUDE": "[/a/*.log, /b/*.log]",
        "FIRSTFAULT_SOURCES__FILES__0__JOB": "123",
        "FIRSTFAULT_SOURCES__FILES__1__INCLUDE": "[/c]",
        "FIRSTFAULT_SOURCES__FILES__1__NAME": "more",
        "FIRSTFAULT_ALERTMANAGER__LABELS__CLUSTER": "true",
    }
    config = load(None, environ).config
    assert [(one.include, one.job) for one in config.sources.files] == [(["/a/*.log", "/b/*.log"], "123"), (["/c"], None)]
    assert config.alertmanager.labels == {"cluster": "true"}


def test_what_kubernetes_sets_for_a_service_of_our_name_is_not_ours():
    """Names without a double underscore are left alone; ours that are misspelt are refused by their name."""
    assert load(None, {"FIRSTFAULT_PORT": "tcp://10.0.0.1:9465", "FIRSTFAULT_SERVICE_HOST": "10.0.0.1"}).config == Config()
    found = faults(None, {"FIRSTFAULT_WEB__LISTN": "x", "FIRSTFAULT_STOER__PATH": "y", "FIRSTFAULT_SOURCES__FILES__3__JOB": "z"})
    assert "environment variable FIRSTFAULT_WEB__LISTN: unknown key 'listn' in web; did you mean 'listen'?" in found
    assert "environment variable FIRSTFAULT_STOER__PATH: unknown key 'stoer'; did you mean 'store'?" in found
    assert any("FIRSTFAULT_SOURCES__FILES__3__JOB" in fault and "the next is number 0" in fault for fault in found)


def test_words_that_old_yaml_takes_for_truth_values_stay_words(tmp_path):
    """A namespace called no is a namespace."""
    config = load(write(tmp_path, "sources: {files: [{include: [a], namespace: no, job: 2026-01-02}]}")).config
    assert (config.sources.files[0].namespace, config.sources.files[0].job) == ("no", "2026-01-02")


def test_shown_configuration_loads_to_the_same_configuration(tmp_path):
    """What show prints is itself a configuration."""
    path = write(tmp_path, "web: {listen: '[::]:1'}\nsources:\n  files:\n    - {include: ['**/x: y.log', '# no'], job: 'on'}\n")
    first = load(path)
    again = write(tmp_path, show(first, resolved=True))
    assert load(again).config == first.config


def test_secret_files_are_read_anew(tmp_path):
    """A rotated secret is used without a restart, and a missing file says which."""
    from firstfault.config import read_secret

    file = tmp_path / "token"
    file.write_text("one\n")
    assert read_secret(None, file) == "one"
    file.write_text("two")
    assert read_secret(None, file) == "two"
    file.unlink()
    with pytest.raises(DeliveryError, match="token: cannot be read"):
        read_secret(None, file)


def test_identity_labels_are_those_of_the_alerts():
    """No label that an alert is known by can be set by an operator."""
    from firstfault.model import Incident, JobKey, Verdict
    from firstfault.sinks.advice import Advice
    from firstfault.sinks.alerts import labels_of

    incident = Incident("i", JobKey(), 0, "settled", "x", Verdict("undetermined"), None)
    assert set(labels_of(incident, Advice("x", "X"))) == IDENTITY_LABELS


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "ignore"))))
def test_any_bytes_load_or_are_refused(tmp_path, data):
    """No content of a file makes loading fail in any other way."""
    path = tmp_path / "any.yaml"
    path.write_bytes(data)
    with contextlib.suppress(ConfigError):
        assert load(path).config is not None


def test_the_committed_schema_is_the_models():
    """config.schema.json is what `firstfault config schema` prints."""
    assert (ROOT / "config.schema.json").read_text(encoding="utf-8") == json_schema()


def test_the_reference_page_is_the_models():
    """docs/configuration.md carries the generated tables as they are now."""
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert reference() in page


def test_every_option_is_described():
    """An option without a description would be a riddle."""

    def walk(model, path):
        for name, field in model.model_fields.items():
            assert field.description, f"{path}{name} has no description"
            for inner in [field.annotation, *getattr(field.annotation, "__args__", ())]:
                if hasattr(inner, "model_fields"):
                    walk(inner, f"{path}{name}.")

    walk(Config, "")


def test_examples_in_the_docs_load(tmp_path):
    """Every YAML block of the configuration page is a valid configuration."""
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in page.split("```yaml\n")[1:]]
    assert blocks
    for block in blocks:
        assert yaml.safe_load(block)
        load(write(tmp_path, block))


def test_times_of_day_need_no_quotes(tmp_path):
    """YAML reads 22:30 as a number of minutes; people mean half past ten."""
    path = write(tmp_path, "alerts: {mutes: [{from_time: 22:30, to_time: 6:05}, {from_time: '08:00', to_time: 18:00}]}\n")
    assert [(one.from_time, one.to_time) for one in load(path).config.alerts.mutes] == [("22:30", "06:05"), ("08:00", "18:00")]
