// Whether two readings of the machine look the same, so that an idle window draws nothing.
import type { MachineView } from "../types";

/** Bytes are shown with one decimal of a GB at most. */
const STEP = 2 ** 30 / 20;

export const looksLike = (a: MachineView | null, b: MachineView): boolean => {
  if (a === null) return false;
  const shown = (view: MachineView) => JSON.stringify(view, (key, value: unknown) => (key.endsWith("_bytes") ? Math.round(Number(value) / STEP) : key === "pressure" ? 0 : value));
  return shown(a) === shown(b);
};
