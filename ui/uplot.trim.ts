// Leaves out of the bundle what the charts never draw: uPlot's bars, splines, table joins, calendar dates, legend and own
// cursor are reachable from its constructor, which keeps them alive through tree-shaking. Saves 7 kB gzipped.
import type { Plugin } from "vite";

/** Text of uPlot's module, and what stands there instead. A text that is not found fails the build. */
const cuts: [string | RegExp, string][] = [
  ["(paths.bars    = bars);", ""],
  ["(paths.spline  = monotoneCubic);", ""],
  ["uPlot.join = join;", ""],
  ["uPlot.fmtDate = fmtDate;", ""],
  ["uPlot.tzDate  = tzDate;", ""],
  ["uPlot.rangeLog = rangeLog;", ""],
  ["uPlot.rangeAsinh = rangeAsinh;", ""],
  ["sc.distr == 3 ? logAxisSplits : sc.distr == 4 ? asinhAxisSplits : numAxisSplits", "numAxisSplits"],
  ["(isTime && sc.distr == 1 ? _timeAxisSplits : ", "("],
  // One cursor of the window's own stands across all panels, and names stand at the right instead of a legend.
  ["const showLegend = legend.show;", "const showLegend = false;"],
  [/const showCursor = +cursor\.show;/, "const showCursor = false;"],
  ["if (legend.show && legend.live && shouldSetLegend)", "if (false)"],
  ["updateCursor(null, _fire, _pub);", ""],
  [/events\.mouse(down|move|up) = mouse(Down|Move|Up);\s+/g, ""],
  ["events.dblclick = dblClick;", ""],
  // Axes of this window are never calendar axes: `time: false`, with their own ticks.
  [/const \[ timeIncrsMs, _timeAxisStampsMs, timeAxisSplitsMs \] = genTimeStuffs\(1\);/, "const timeIncrsMs = [], _timeAxisStampsMs = [], timeAxisSplitsMs = noop;"],
  [/const \[ timeIncrsS,  _timeAxisStampsS,  timeAxisSplitsS  \] = genTimeStuffs\(1e-3\);/, "const timeIncrsS = [], _timeAxisStampsS = [], timeAxisSplitsS = noop;"],
  ["const _fmtDate = (opts.fmtDate || fmtDate);", ""],
  [/const _timeAxisVals   = .*/, ""],
  [/const _timeSeriesVal  = .*/, ""],
  [/isTime \? \(isStr\(sv\) \? .*? : sv \|\| numSeriesVal/, "sv || numSeriesVal"],
  [/isTime \? \(\s+\/\/ config array[\s\S]*?\) : av \|\| numAxisVals/, "av || numAxisVals"],
  [/axis\.filter \|\| \( +sc\.distr >= 3 .*? : retArg1\)/, "axis.filter || retArg1"],
  ["if (cursor.dataIdx == null)", "if (false)"],
];

export const trimUPlot: Plugin = {
  name: "ebb-trim-uplot",
  apply: "build",
  transform: {
    filter: { id: /uPlot\.esm\.js$/ },
    handler(code) {
      for (const [text, instead] of cuts) {
        const cut = code.replace(text, instead);
        if (cut === code) this.error(`uPlot changed: ${text} is not there any more. Look at ui/uplot.trim.ts.`);
        code = cut;
      }
      return { code, map: null };
    },
  },
};
