"""The output of every bench written in Python; report.h is the same in C."""
import datetime
import json
import os
import platform
import statistics
import subprocess


def _cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def commit():
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          check=False)
    return said.stdout.strip() or "unknown"


class Report:
    """Rows of figures, each beside its ceiling or its peer; a table, and a JSON document."""

    def __init__(self, bench, path, join=False):
        """`join`: keeps the file's rows, if of the same commit, except for rows measured again and
        counts, which are added up."""
        self.bench, self.path, self.rows, self.counts = bench, path, [], set()
        self.join = join and bool(path)
        self.conditions = {"load_at_start": f"{os.getloadavg()[0]:.2f}"}
        if self.join:
            self._old()  # refused before hours are spent

    def call(self, said):
        """One of the calls whose counts are added: `said` names its seed. Repeating the same call
        would count its runs twice, and is refused."""
        if self.join and said in self._old()["conditions"].get("calls", "").split("; "):
            raise SystemExit(f"{self.path} has '{said}' already: give another seed")
        self.conditions["calls"] = said

    def count(self, name, number, unit="1"):
        """A row whose values are added over calls."""
        self.row(name, unit, [number])
        self.counts.add(name)

    def condition(self, name, value):
        self.conditions[name] = str(value)

    def row(self, name, unit, samples, against=None, against_value=0.0):
        """Samples of one figure; the value is their median. `against`: a ceiling or a peer.

        `against_value`: its value, or a list of one for each sample, if both were measured
        alternately: then the ratio is the median of the turns' ratios, with their lowest and
        highest.
        """
        value = statistics.median(samples)
        turns = against_value if isinstance(against_value, list) else []
        if turns:
            against_value = statistics.median(turns)
            ratios = [sample / beside for sample, beside in zip(samples, turns, strict=True)]
        row = {"name": name, "value": value, "unit": unit, "min": min(samples),
               "max": max(samples), "n": len(samples)}
        if against and against_value > 0:
            row |= {"against": against, "against_value": against_value,
                    "ratio": statistics.median(ratios) if turns else value / against_value}
        if turns:
            row |= {"ratio_min": min(ratios), "ratio_max": max(ratios)}
        self.rows.append(row)
        beside = f"   {row['ratio']:.2f} of {against}" if "ratio" in row else ""
        print(f"{name:44} {value:14.4g} {unit:8} ({row['min']:.4g} to {row['max']:.4g}){beside}",
              flush=True)

    def estimate(self, name, unit, value, half, n):
        """A mean of `n`, and the ends of its interval at `half` on either side; None: no
        interval."""
        row = {"name": name, "value": value, "unit": unit, "n": n}
        if half is not None:
            row |= {"min": value - half, "max": value + half}
        self.rows.append(row)
        ends = f" ({value - half:+.3g} to {value + half:+.3g})" if half is not None else ""
        print(f"{name:56} {value:+10.3g} {unit}{ends}", flush=True)

    def finish(self):
        """Writes the document of tests/contracts/bench.schema.json."""
        if not self.path:
            return
        self.conditions["load_at_end"] = f"{os.getloadavg()[0]:.2f}"
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        now = datetime.datetime.now(datetime.timezone.utc)
        document = {"schema": "longhaul.bench/1", "bench": self.bench, "commit": commit(),
                    "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "host": {"cpu": _cpu(), "cores": os.cpu_count(), "memory_bytes": memory},
                    "conditions": self.conditions, "rows": self.rows}
        if self.join:
            self._join(document)
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")

    def _old(self):
        """The file's present contents; refused if of another commit or bench."""
        if not os.path.exists(self.path):
            return {"conditions": {}, "rows": []}
        with open(self.path, encoding="utf-8") as file:
            old = json.load(file)
        if (old["bench"], old["commit"]) != (self.bench, commit()):
            raise SystemExit(f"{self.path} is of {old['bench']} at {old['commit']}: figures of "
                             f"{self.bench} at {commit()} do not go with them; give another file")
        return old

    def _join(self, document):
        old, made = self._old(), {row["name"]: row for row in document["rows"]}
        for row in old["rows"]:
            if row["name"] in self.counts:
                new = made[row["name"]]
                new["value"] = new["min"] = new["max"] = new["value"] + row["value"]
        document["rows"][:0] = [row for row in old["rows"] if row["name"] not in made]
        for name, said in old["conditions"].items():  # joins differing texts, such as loads
            now = document["conditions"].get(name, said)
            between = "; " if name == "calls" else ", "
            document["conditions"][name] = now if now == said else f"{said}{between}{now}"
