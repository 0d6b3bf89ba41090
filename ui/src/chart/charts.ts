// All panels: created once, drawn for each scene, and timed. Knows no run, no host and no keys.
import uPlot from "uplot";
import { uplotData } from "./curves";
import { LEFT, SPILL, type Layout } from "./layout";
import { makePanel } from "./panel";
import type { Scene } from "./scene";
import { PANELS, perPanel, type PanelId } from "./series";

declare global {
  interface Window {
    /** Milliseconds of the last 100 redraws, so that a script can check the budget of 8 ms. */
    __ebbRedrawMs?: number[];
  }
}

const recordTime = (ms: number) => {
  const ring = (window.__ebbRedrawMs ??= []);
  if (ring.push(ms) > 100) ring.shift();
};

export class Charts {
  #plots: Record<PanelId, uPlot> | undefined;
  #scene: Scene | undefined;
  #size = "";
  #ratio = 0;

  constructor(private readonly roots: Record<PanelId, HTMLElement>) {}

  draw(scene: Scene, layout: Layout) {
    const begun = performance.now();
    const stale = this.#scene?.colors !== scene.colors || this.#ratio !== uPlot.pxRatio;
    this.#scene = scene;
    if (stale) this.destroy(); // uPlot reads fonts and dashes once; theme, text size and screen rarely change
    this.#ratio = uPlot.pxRatio;
    const created = this.#plots === undefined;
    const width = LEFT + layout.plotWidth + SPILL;
    const size = `${width}x${layout.height}`;
    this.#plots ??= perPanel((panel) => makePanel(this.roots[panel.id], panel, () => this.#scene!, layout.bands[panel.id], width));
    for (const { id } of PANELS) {
      const plot = this.#plots[id];
      plot.batch(() => {
        if (this.#size !== size) plot.setSize({ width, height: layout.bands[id].canvasHeight });
        plot.setData(uplotData(id, scene));
      });
    }
    this.#size = size;
    if (!created) recordTime(performance.now() - begun);
  }

  destroy() {
    for (const plot of Object.values(this.#plots ?? {})) plot.destroy();
    this.#plots = undefined;
  }
}
