// The chart options of this window, remembered over runs and restarts.
import { parseOptions, type ChartOptions } from "./viewOptions";

const KEY = "ebb.charts";

const stored = () => {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage may be switched off
  }
};

class Options {
  current = $state.raw<ChartOptions>(parseOptions(stored()));

  set(change: Partial<ChartOptions>) {
    this.current = { ...this.current, ...change };
    try {
      localStorage.setItem(KEY, JSON.stringify(this.current));
    } catch {
      // then they last as long as the page
    }
  }
}

export const options = new Options();
