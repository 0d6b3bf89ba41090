// Repeats a request: one at a time, and none while the window is hidden.

/** Calls `request` every `ms`. Returns a function that stops this. */
export const poll = (ms: number, request: () => Promise<void>): (() => void) => {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let busy = false;
  let stopped = false;
  const run = async () => {
    timer = undefined;
    if (busy || stopped || document.hidden) return;
    busy = true;
    const begun = performance.now();
    try {
      await request();
    } finally {
      busy = false;
      if (!stopped && !document.hidden) timer = setTimeout(run, Math.max(0, ms - (performance.now() - begun)));
    }
  };
  const wake = () => {
    if (!document.hidden && timer === undefined) void run();
  };
  document.addEventListener("visibilitychange", wake);
  timer = setTimeout(run); // later, so that an effect does not depend on what the request reads
  return () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", wake);
  };
};
