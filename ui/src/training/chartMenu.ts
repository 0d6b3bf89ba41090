// The context menu of the charts, which is loaded when it opens.
import { contextMenu } from "../actions/perform.svelte";
import { copyText } from "../actions/partMenus";
import { attempt } from "../appState.svelte";
import type { Scene } from "../chart/scene";
import { wholeRun, type Span } from "../chart/timeRange";
import { clock } from "../format";
import { chartHost } from "../host/charts";
import type { MenuPosition } from "../host/host";
import { picture } from "./chartPicture";
import { readingAt } from "./valuesAtCursor";
import { t } from "../strings/t";

/** The values at a time, a row for each, as a spreadsheet takes them. */
export const valuesText = (scene: Scene, ms: number): string =>
  [[t("Time"), clock(ms)], ...readingAt(scene, ms, 0).rows].map((row) => row.join("\t")).join("\n");

/** What the menu is about. */
export interface ShownCharts {
  scene: Scene;
  /** The time under the cursor. */
  ms: number;
  /** The element of all panels. */
  panels: HTMLElement;
  zoomTo: (span: Span) => void;
}

export const chartCommands = ({ scene, ms, panels, zoomTo }: ShownCharts) => ({
  "save-chart": () => attempt(async () => void (await chartHost.saveChart(await picture(panels, scene.colors.bg)))),
  "copy-values": () => copyText(valuesText(scene, ms)),
  "whole-run": () => zoomTo({ follow: true, lengthMs: wholeRun }),
});

export const chartMenu = (shown: ShownCharts, at: MenuPosition | null) => contextMenu("chart", chartCommands(shown), at);
