// Keys of the charts: arrows move the cursor (with shift, ten times as far; with the changes open,
// from change to change), + and - zoom, L follows live, Escape removes the cursor.
import { timeRange, zoom } from "../chart/timeRange";
import type { ShownRun } from "./shownRun.svelte";

const arrows: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };
const zooms: Record<string, number> = { "+": 0.5, "=": 0.5, "-": 2 };

/** The position of the cursor after the key; `null` for no cursor, `undefined` if the key is not
 * one of these. */
export const chartKey = (event: KeyboardEvent, live: ShownRun, cursorMs: number | null): number | null | undefined => {
  if (event.metaKey || event.ctrlKey || event.altKey) return undefined;
  if (event.target instanceof HTMLElement && event.target.closest("input, select, textarea, [role=listbox]")) return undefined;
  const { fromMs, toMs } = timeRange(live.span, live.nowMs);
  const arrow = arrows[event.key];
  if (arrow !== undefined) {
    const by = Math.max(1000, Math.round((toMs - fromMs) / 300_000) * 1000) * arrow * (event.shiftKey ? 10 : 1);
    const last = Math.min(toMs, live.nowMs);
    return Math.min(Math.max((cursorMs ?? last) + by, fromMs), last);
  }
  const factor = zooms[event.key];
  if (factor !== undefined) {
    live.zoomTo(zoom(live.span, factor, live.nowMs, cursorMs ?? undefined));
    return cursorMs;
  }
  if (event.key === "l" || event.key === "L") {
    live.show({ follow: true, lengthMs: toMs - fromMs });
    return cursorMs;
  }
  return event.key === "Escape" ? null : undefined;
};
