// Asks again and again: one question in flight at a time, none while the window is hidden, the next one only after
// the answer. Knows nothing of what is asked.

/** Starts asking every `ms`; the answer stops it. */
export const every = (ms: number, ask: () => Promise<void>): (() => void) => {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let busy = false;
  let stopped = false;
  const turn = async () => {
    timer = undefined;
    if (busy || stopped || document.hidden) return;
    busy = true;
    const begun = performance.now();
    try {
      await ask();
    } finally {
      busy = false;
      if (!stopped && !document.hidden) timer = setTimeout(turn, Math.max(0, ms - (performance.now() - begun)));
    }
  };
  const wake = () => {
    if (!document.hidden && timer === undefined) void turn();
  };
  document.addEventListener("visibilitychange", wake);
  timer = setTimeout(turn); // not at once: what an effect reads while it runs would restart it
  return () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", wake);
  };
};
