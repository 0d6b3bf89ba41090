"""Opens Ebb's window through WebKitWebDriver and asks its page. Shared by cold-start, soak, screenshots and window-cost."""
import glob
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

# A proxy of the user is not used for this machine.
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


# WebKitGTK's own browser, which WebKitWebDriver starts with a blank page: what a window costs before it shows anything.
BLANK = next(iter(glob.glob("/usr/lib/*/webkit2gtk-4.1/MiniBrowser")), "MiniBrowser")
# Without a GPU, Ebb's window makes WebKitGTK draw without shared buffers; a blank page is measured in the same way.
PLAIN = ("--automation",)
if not glob.glob("/dev/dri/*"):
    os.environ.setdefault("WEBKIT_DISABLE_DMABUF_RENDERER", "1")


class Window:
    """The app, started by a driver of its own; both end with `close`."""

    # Seconds that an answer may take.
    patience = 60

    def __init__(self, app, home, args=("app",)):
        if not os.access(app, os.X_OK):
            raise SystemExit(f"{app} is missing: run cargo build --release, or name the app")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        surroundings = {**os.environ, "TAURI_WEBVIEW_AUTOMATION": "true", "EBB_HOME": home}
        command = ["WebKitWebDriver", f"--port={self.port}"]
        self.driver = subprocess.Popen(command, env=surroundings, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        options = {"webkitgtk:browserOptions": {"binary": os.path.abspath(app), "args": list(args)}}
        wanted = {"capabilities": {"alwaysMatch": options}}
        self.session = f"/session/{self.until(lambda: self.ask('/session', wanted))['sessionId']}"

    def ask(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with DIRECTLY.open(request, timeout=self.patience) as answer:
            return json.load(answer)["value"]

    def get(self, path):
        with DIRECTLY.open(f"http://127.0.0.1:{self.port}{path}", timeout=self.patience) as answer:
            return json.load(answer)["value"]

    def run(self, script):
        return self.ask(f"{self.session}/execute/sync", {"script": script, "args": []})

    def run_async(self, script, *arguments):
        """Runs a script that calls its last argument with the result."""
        return self.ask(f"{self.session}/execute/async", {"script": script, "args": list(arguments)})

    def until(self, question):
        end = time.monotonic() + self.patience
        while True:
            try:
                answer = question()
            except (urllib.error.URLError, ConnectionError):
                answer = None
            if answer:
                return answer
            if time.monotonic() > end:
                raise SystemExit("the window did not answer: is there a display, and WebKitWebDriver (scripts/setup test)?")
            time.sleep(0.05)

    def process(self, name):
        """The process of this window whose name begins so."""
        group = str(self.driver.pid)
        found = subprocess.run(["pgrep", "-g", group, name], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])

    def close(self):
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()


def begun_unix_ms(process):
    """When a process was started, milliseconds since 1970, to 10 ms."""
    with open(f"/proc/{process}/stat") as stat:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/stat") as stat:
        boot = next(int(line.split()[1]) for line in stat if line.startswith("btime"))
    uptime = float(open("/proc/uptime").read().split()[0])
    # btime has whole seconds only; the clock now less the time since boot is finer.
    fine = time.time() - uptime
    boot = fine if abs(fine - boot) < 2 else boot
    return (boot + ticks / os.sysconf("SC_CLK_TCK")) * 1000


# WebKitGTK reports no paint times, so the page is asked at each frame: the second frame after it is ready has been painted. The
# driver adds a delay, so the result is late rather than early. A blank page is ready when it has a body.
PAINT = """const [done] = arguments;
const at = () => performance.timeOrigin + performance.now();
const frame = () => document.body?.dataset.ready === "1" || location.protocol === "about:"
  ? requestAnimationFrame(() => requestAnimationFrame(() => done(at()))) : requestAnimationFrame(frame);
frame()"""


def blank_window(home):
    """WebKitGTK's own browser with a blank page."""
    return Window(BLANK, home, PLAIN)


def first_paint_ms(app, home, args=("app",)):
    """Milliseconds from the start of the app to the first paint of its window."""
    window = Window(app, home, args)
    try:
        painted = window.until(lambda: window.run_async(PAINT))
        return painted - begun_unix_ms(window.process(os.path.basename(app)))
    finally:
        window.close()


def cpu_seconds(process):
    """CPU time that a process has used since its start, in user and system mode, over all its threads."""
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rollup(process):
    """The sizes in `smaps_rollup`, in bytes."""
    with open(f"/proc/{process}/smaps_rollup") as lines:
        sizes = dict(line.split(":", 1) for line in lines if ":" in line and " kB" in line)
    return {name: int(size.split()[0]) * 1024 for name, size in sizes.items()}


def memory_bytes(process):
    """Resident memory, and the same with shared pages divided among their users."""
    sizes = rollup(process)
    return sizes["Rss"], sizes["Pss"]


def private_bytes(process):
    """Memory that would come back if the process ended: its anonymous pages."""
    return rollup(process)["Anonymous"]
