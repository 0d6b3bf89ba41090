// Removes from the bundle the parts of uPlot that the charts do not use: bars, splines, table
// joins, calendar dates, legend and cursor. Tree-shaking cannot remove them, because the
// constructor of uPlot refers to them. Saves 7 kB gzipped. What uPlot computes when it is loaded is
// computed when it is used.
import type { Plugin } from "vite";

/** Text in uPlot's module, and its replacement. The build fails if a text is not found. */
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
  // The window draws one cursor across all panels, and names at the right instead of a legend.
  ["const showLegend = legend.show;", "const showLegend = false;"],
  [/const showCursor = +cursor\.show;/, "const showCursor = false;"],
  ["if (legend.show && legend.live && shouldSetLegend)", "if (false)"],
  ["updateCursor(null, _fire, _pub);", ""],
  [/events\.mouse(down|move|up) = mouse(Down|Move|Up);\s+/g, ""],
  ["events.dblclick = dblClick;", ""],
  // No axis is a calendar axis: all have `time: false` and their own ticks.
  [/const \[ timeIncrsMs, _timeAxisStampsMs, timeAxisSplitsMs \] = genTimeStuffs\(1\);/, "const timeIncrsMs = [], _timeAxisStampsMs = [], timeAxisSplitsMs = noop;"],
  [/const \[ timeIncrsS,  _timeAxisStampsS,  timeAxisSplitsS  \] = genTimeStuffs\(1e-3\);/, "const timeIncrsS = [], _timeAxisStampsS = [], timeAxisSplitsS = noop;"],
  ["const _fmtDate = (opts.fmtDate || fmtDate);", ""],
  [/const _timeAxisVals   = .*/, ""],
  [/const _timeSeriesVal  = .*/, ""],
  [/isTime \? \(isStr\(sv\) \? .*? : sv \|\| numSeriesVal/, "sv || numSeriesVal"],
  [/isTime \? \(\s+\/\/ config array[\s\S]*?\) : av \|\| numAxisVals/, "av || numAxisVals"],
  [/axis\.filter \|\| \( +sc\.distr >= 3 .*? : retArg1\)/, "axis.filter || retArg1"],
  ["if (cursor.dataIdx == null)", "if (false)"],
  // Both load the data of a locale, which would delay the first paint of the window.
  ["const numFormatter = new Intl.NumberFormat(domEnv ? nav.language : 'en-US');", "let numFormatter;"],
  ["const fmtNum = val => numFormatter.format(val);", "const fmtNum = val => (numFormatter ??= new Intl.NumberFormat(nav.language)).format(val);"],
  ["const localTz = new Intl.DateTimeFormat().resolvedOptions().timeZone;", "const localTz = '';"],
];

export const trimUPlot: Plugin = {
  name: "ebb-trim-uplot",
  apply: "build",
  transform: {
    filter: { id: /uPlot\.esm\.js$/ },
    handler(code) {
      for (const [text, replacement] of cuts) {
        const cut = code.replace(text, replacement);
        if (cut === code) this.error(`uPlot changed: ${text} was not found; update ui/uplot.trim.ts`);
        code = cut;
      }
      return { code, map: null };
    },
  },
};
