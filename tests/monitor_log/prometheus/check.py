"""Prometheus and its tools take what `monitor-log export` tells, and the files of containers/monitoring.

Grafana and Compose do not run here: dashboards and the compose file are held against their schemas.

Run by `make monitoring`; needs target/release/monitor-log, .monitoring/bin, cc and requirements-monitoring.txt.
"""

import contextlib
import datetime
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/fixtures/monitor_log"
MONITORING = ROOT / "containers/monitoring"
MONITOR_LOG = os.environ.get("MONITOR_LOG", ROOT / "target/release/monitor-log")
PROMETHEUS, PROMTOOL = (ROOT / ".monitoring/bin" / name for name in ("prometheus", "promtool"))

# What Prometheus itself makes.
ITS_OWN = {"up", "ALERTS"}
# Told only where there is a GPU that can: left out by the GPUs of fake_nvml.c.
MAY_BE_MISSING = {"plmkit_gpu_last_xid"}
# Grafana writes it into a dashboard, beside the query of a variable, and its schema does not have it.
NOT_IN_THE_SCHEMA = re.compile(r"\.templating\.list\[\d+\]\.definition")

plugins.register_default_plugins()


def outside_the_schema(value, read, place=""):
    """The places of JSON that its reader dropped or changed."""
    if isinstance(value, dict) and isinstance(read, dict):
        pairs = [(value[key], read.get(key), f"{place}.{key}") for key in value]
    elif isinstance(value, list) and isinstance(read, list) and len(value) == len(read):
        pairs = [(one, other, f"{place}[{index}]") for index, (one, other) in enumerate(zip(value, read))]
    else:
        return [] if value == read else [place]
    return [found for pair in pairs for found in outside_the_schema(*pair)]


def outside_grafanas_schema(dashboard):
    """The places of a dashboard that Grafana's own types of it do not have, and its panels of unknown types."""
    read = Dashboard.from_json(json.loads(json.dumps(dashboard)))
    places = outside_the_schema(dashboard, json.loads(JSONEncoder().encode(read)))
    unknown = [panel["type"] for panel in dashboard["panels"] if runtime.panelcfg_config(panel["type"]) is None]
    return [place for place in places if not NOT_IN_THE_SCHEMA.fullmatch(place)] + unknown


def outside_the_schema_of_compose(text):
    """What `check-jsonschema` says of a compose file; it carries the schema of the Compose specification."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as compose:
        compose.write(text)
        compose.flush()
        command = [pathlib.Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
        done = subprocess.run([*command, compose.name], capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def promtool(*arguments, text=None):
    done = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def wait_for(what, seconds=30):
    """What `what` returns once it is something."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"{what.__name__}: not within {seconds} s"
        time.sleep(0.1)
    return found


def get(url, accept="*/*"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def running(command, **options):
    """A process that ends with the block."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=20)


def log_of_now():
    """Run events as a run that works now writes them: the first of the fixture's runs, without its end, and a killed one."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    events = [json.loads(line) for line in (FIXTURES / "events.jsonl").read_text().splitlines()]
    events = [event | {"time": now} for event in events if event["run"] == "a" and event["type"] != "done"]
    events = [event for event in events if not (event["type"] == "batch" and event["batch"] == 3)]
    events[0] |= {"gpu_uuids": ["GPU-0"], "batches_saved": 2}
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)


def names_in_expression(expression):
    """Metric names of a query: what is left without strings, labels in braces, and words of the language."""
    expression = re.sub(r"\"[^\"]*\"|'[^']*'", "", expression)
    expression = re.sub(r"\{[^}]*\}", "", expression)
    return set(re.findall(r"\b(?:plmkit_\w+|up|ALERTS)\b", expression))


def expressions():
    """Every query of the dashboards and the alert rules, with where it is."""
    for path in sorted((MONITORING / "grafana/dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text())
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield path.name, target["expr"]
        for variable in dashboard["templating"]["list"]:
            yield path.name, variable["definition"]
    rules = (MONITORING / "prometheus/alerts.yml").read_text()
    for rule in re.split(r"\n\s*- (?:alert|record): ", rules)[1:]:
        yield "alerts.yml", re.search(r"expr: (.*?)(?:\n\s*(?:for|labels):|\n\n)", rule, re.S).group(1)


class Files(unittest.TestCase):
    """The files of containers/monitoring, without an exporter."""

    def accepted(self, *arguments):
        code, said = promtool(*arguments)
        self.assertEqual(code, 0, said)
        return said

    def test_promtool_takes_the_configuration(self):
        self.accepted("check", "config", MONITORING / "prometheus/prometheus.yml")

    def test_promtool_takes_the_rules(self):
        said = self.accepted("check", "rules", "--lint-fatal", MONITORING / "prometheus/alerts.yml")
        self.assertIn("19 rules found", said)

    def test_alerts_fire_for_what_they_are_for(self):
        self.accepted("test", "rules", ROOT / "tests/monitor_log/prometheus/alerts.test.yml")

    def test_runs_that_share_a_gpu_have_equal_parts_of_its_energy(self):
        [expression] = [expression for _, expression in expressions() if expression.startswith(
            "sum by (instance, run) (rate(plmkit_run_residues_total")]
        expression = re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "1m"))
        # 300 W for two runs at work, 600 and 300 residues a second, and one that ended.
        series = {"plmkit_gpu_energy_joules_total{instance='n',uuid='GPU-0'}": "0+4500x20"}
        for run, residues, is_running in (("a", "0+9000x20", 1), ("b", "0+4500x20", 1), ("c", "7x20", 0)):
            series[f"plmkit_run_residues_total{{instance='n',run='{run}'}}"] = residues
            series[f"plmkit_run_gpu_info{{instance='n',run='{run}',uuid='GPU-0'}}"] = "1x20"
            series[f"plmkit_run_state{{instance='n',run='{run}',state='running'}}"] = f"{is_running}x20"
        samples = {"a": 600 / 150, "b": 300 / 150, "c": 0}
        samples = [{"labels": f"{{instance='n',run='{run}'}}", "value": value} for run, value in samples.items()]
        test = {
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": expression, "eval_time": "4m", "exp_samples": samples}],
        }
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as tests:
            # JSON is YAML.
            json.dump({"tests": [test]}, tests)
            tests.flush()
            self.accepted("test", "rules", tests.name)

    def test_each_alert_has_a_test(self):
        rules = (MONITORING / "prometheus/alerts.yml").read_text()
        tests = (ROOT / "tests/monitor_log/prometheus/alerts.test.yml").read_text()
        for alert in re.findall(r"- alert: (\w+)", rules):
            self.assertRegex(tests, rf"alertname: {alert}\n\s*exp_alerts:\n\s*- exp_labels", alert)

    def test_a_rule_that_is_wrong_is_seen(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as rules:
            rules.write("groups: [{name: g, rules: [{alert: A, expr: 'sum('}]}]")
            rules.flush()
            self.assertNotEqual(promtool("check", "rules", rules.name)[0], 0)

    def test_dashboards_have_names_of_their_own_and_the_data_source_that_is_provisioned(self):
        source = (MONITORING / "grafana/provisioning/datasources/prometheus.yml").read_text()
        uid = re.search(r"^    uid: (\w+)$", source, re.M).group(1)
        uids = set()
        for path in (MONITORING / "grafana/dashboards").glob("*.json"):
            dashboard = json.loads(path.read_text())
            uids.add(dashboard["uid"])
            places = set()
            for panel in dashboard["panels"]:
                self.assertEqual(panel["datasource"]["uid"], uid, path.name)
                self.assertTrue(panel["title"], path.name)
                place = panel["gridPos"]
                for x in range(place["x"], place["x"] + place["w"]):
                    for y in range(place["y"], place["y"] + place["h"]):
                        self.assertNotIn((x, y), places, f"{path.name}: {panel['title']} lies over another")
                        self.assertLess(x, 24, path.name)
                        places.add((x, y))
        self.assertEqual(uids, {"plmkit-gpu", "plmkit-run", "plmkit-fleet"})

    def test_dashboards_follow_the_schema_of_grafana(self):
        for path in (MONITORING / "grafana/dashboards").glob("*.json"):
            self.assertEqual(outside_grafanas_schema(json.loads(path.read_text())), [], path.name)

    def test_what_the_schema_of_grafana_does_not_have_is_seen(self):
        text = (MONITORING / "grafana/dashboards/run.json").read_text()
        for right, wrong in [("refresh", "refresch"), ("gridPos", "gridPosition"), ("orientation", "orientatoin"),
                             ("legendFormat", "legend"), ("thresholds", "tresholds"), ('"stat"', '"statt"')]:
            self.assertIn(right, text)
            found = outside_grafanas_schema(json.loads(text.replace(right, wrong)))
            self.assertTrue(any(wrong.strip('"') in place for place in found), f"{wrong}: {found}")

    def test_compose_follows_the_schema_of_the_compose_specification(self):
        compose = (MONITORING / "compose.yml").read_text()
        self.assertEqual(outside_the_schema_of_compose(compose), "")
        for right, wrong in [("read_only: true", "read_onli: true"), ("cap_drop: [ALL]", "cap_drop: ALL")]:
            self.assertIn(right, compose)
            self.assertIn("chema validation errors", outside_the_schema_of_compose(compose.replace(right, wrong)))

    def test_rates_are_over_what_the_scrape_interval_and_the_picture_allow(self):
        for place, expression in expressions():
            if place.endswith(".json"):
                for window in re.findall(r"rate\([^[]*\[([^]]*)\]", expression):
                    self.assertEqual(window, "$__rate_interval", f"{place}: {expression}")

    def test_tables_show_no_column_that_says_nothing(self):
        for path in (MONITORING / "grafana/dashboards").glob("*.json"):
            for panel in json.loads(path.read_text())["panels"]:
                if panel["type"] == "table":
                    [organize] = panel["transformations"]
                    hidden = organize["options"]["excludeByName"]
                    self.assertTrue(hidden["Time"] and hidden["__name__"] and hidden["job"], panel["title"])

    def test_grafana_fetches_nothing(self):
        compose = (MONITORING / "compose.yml").read_text()
        for setting in ["GF_PLUGINS_PREINSTALL_DISABLED: \"true\"", "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES: \"false\"",
                        "GF_ANALYTICS_CHECK_FOR_UPDATES: \"false\"", "GF_NEWS_NEWS_FEED_ENABLED: \"false\""]:
            self.assertIn(setting, compose)

    def test_compose_has_no_password_and_binds_to_loopback(self):
        compose = (MONITORING / "compose.yml").read_text()
        passwords = re.findall(r"PASSWORD: (.*)", compose)
        self.assertEqual(len(passwords), 1)
        self.assertTrue(passwords[0].startswith("${GRAFANA_ADMIN_PASSWORD:?"), passwords)
        self.assertIn("--web.listen-address=127.0.0.1:9090", compose)
        self.assertIn("GF_SERVER_HTTP_ADDR: 127.0.0.1", compose)
        self.assertIn("--storage.tsdb.retention.time=30d", compose)
        self.assertNotIn("0.0.0.0", compose)
        self.assertNotIn("ports:", compose)


class Export(unittest.TestCase):
    """A real exporter with the GPUs of fake_nvml.c and a run at work."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        cls.nvml = cls.folder / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", cls.nvml, FIXTURES / "fake_nvml.c"], check=True)
        (cls.folder / "events.jsonl").write_text(log_of_now())
        command = [MONITOR_LOG, "export", "--listen", "127.0.0.1:0", "--interval", "200ms", "--nvml", cls.nvml,
                   "--events", cls.folder]
        exporter = cls.stack.enter_context(running(command, cwd=cls.folder))
        for line in exporter.stderr:
            if match := re.search(r"serving (http://(\S+))/metrics", line):
                cls.url, cls.address = match.groups()
                break
        wait_for(lambda: "plmkit_gpu_energy_joules_total" in get(f"{cls.url}/metrics"))

    def names(self):
        """The names of all samples."""
        return set(re.findall(r"^(plmkit_\w+)", get(f"{self.url}/metrics"), re.M))

    def test_promtool_takes_the_metrics(self):
        code, said = promtool("check", "metrics", text=get(f"{self.url}/metrics"))
        self.assertEqual((code, said), (0, ""))

    def test_promtool_would_say_what_is_wrong(self):
        wrong = get(f"{self.url}/metrics").replace("# HELP plmkit_run_tokens_total", "# HULP")
        self.assertNotEqual(promtool("check", "metrics", text=wrong), (0, ""))

    def test_every_metric_of_dashboards_and_alerts_is_exported_and_the_other_way_round(self):
        told = self.names() | MAY_BE_MISSING
        shown = set()
        for place, expression in expressions():
            names = names_in_expression(expression) - ITS_OWN
            shown |= names
            self.assertLessEqual(names, told, f"{place}: {expression}")
        self.assertEqual(told - shown, set(), "not on any dashboard")

    def test_a_real_prometheus_scrapes_both_forms_and_answers(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        configuration = self.folder / "prometheus.yml"
        rules = MONITORING / "prometheus/alerts.yml"
        configuration.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{rules}]\n"
            "scrape_configs:\n"
            f"  - job_name: plmkit\n    static_configs: [{{targets: ['{self.address}']}}]\n"
        )
        command = [PROMETHEUS, f"--config.file={configuration}", f"--storage.tsdb.path={self.folder}/tsdb",
                   f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]

        def query(expression):
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
            try:
                answer = json.loads(get(url))
            except urllib.error.HTTPError as error:
                if error.code == 503:  # It is starting.
                    return []
                self.fail(f"{expression}: {error.read().decode()}")
            except (urllib.error.URLError, ConnectionError):
                return []
            return [(found["metric"], float(found["value"][1])) for found in answer["data"]["result"]]

        with running(command):
            wait_for(lambda: [value for _, value in query('up{job="plmkit"}') if value == 1])
            wait_for(lambda: query("plmkit_gpu_power_watts"))
            [(labels, value)] = query('plmkit_gpu_utilization_ratio{uuid="GPU-0"}')
            self.assertEqual((labels["index"], value), ("0", 0.97))
            self.assertEqual(query('plmkit_gpu_utilization_ratio{uuid="GPU-1"}'), [])
            self.assertEqual(query('plmkit_gpu_power_watts{uuid="GPU-0"}')[0][1], 250.5)
            self.assertEqual(query('plmkit_run_tokens_total{run="a"}')[0][1], 2790)
            self.assertEqual(query('plmkit_run_batches_saved{run="a"}')[0][1], 2)
            self.assertEqual(query('plmkit_run_state{state="running"}')[0][1], 1)
            self.assertEqual(query("histogram_quantile(1, plmkit_run_wait_seconds_bucket)")[0][1], 0.5)
            joined = query("plmkit_run_gpu_info * on (instance, uuid) group_left (name) plmkit_gpu_info")
            self.assertEqual(joined[0][0]["name"], "Fake, 0")
            wait_for(lambda: query('increase(plmkit_gpu_energy_joules_total{uuid="GPU-0"}[10s]) > 0'))
            metadata = json.loads(get(f"http://127.0.0.1:{port}/api/v1/targets/metadata?metric=plmkit_gpu_power_watts"))
            self.assertEqual(metadata["data"][0]["type"], "gauge")
            pending = wait_for(lambda: query('ALERTS{alertname="PlmkitGpuThrottledCritical"}'))
            self.assertIn("GPU-0", {labels["uuid"] for labels, _ in pending})
            for place, expression in expressions():
                if place.endswith(".json") and not expression.startswith("label_values"):
                    # What Grafana puts in the place of its variables.
                    query(re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "1m")))


if __name__ == "__main__":
    outcome = unittest.main(exit=False, verbosity=2).result
    bad = len(outcome.failures) + len(outcome.errors)
    skipped = len(outcome.skipped)
    print(f"monitoring: {outcome.testsRun - bad - skipped} passed, {bad} failed, {skipped} skipped")
    sys.exit(bad > 0)
