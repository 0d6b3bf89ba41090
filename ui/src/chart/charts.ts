// All panels: created once, drawn for each scene, and timed. Knows no run, no host and no keys.
import uPlot from "uplot";
import { uplotData } from "./curves";
import { LEFT, SPILL, type Layout } from "./layout";
import { makePanel } from "./panel";
import type { Scene } from "./scene";
import type { PanelId } from "./series";

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
  #plots = new Map<PanelId, uPlot>();
  #scene: Scene | undefined;
  #size = "";
  #ratio = 0;

  constructor(private readonly roots: Record<PanelId, HTMLElement>) {}

  draw(scene: Scene, layout: Layout) {
    const begun = performance.now();
    const shown = ({ panels }: Scene) => panels.map(({ id }) => id).join();
    const stale = this.#scene?.colors !== scene.colors || this.#ratio !== uPlot.pxRatio || shown(this.#scene) !== shown(scene);
    this.#scene = scene;
    if (stale) this.destroy(); // uPlot reads fonts and dashes once; theme, text size, screen and panels rarely change
    this.#ratio = uPlot.pxRatio;
    const created = this.#plots.size === 0;
    const width = LEFT + layout.plotWidth + SPILL;
    const size = `${width}x${layout.height}`;
    for (const panel of scene.panels) {
      const band = layout.bands[panel.id];
      const plot = this.#plots.get(panel.id) ?? makePanel(this.roots[panel.id], panel, () => this.#scene!, band, width);
      this.#plots.set(panel.id, plot);
      plot.batch(() => {
        if (this.#size !== size) plot.setSize({ width, height: band.canvasHeight });
        plot.setData(uplotData(panel.id, scene));
      });
    }
    this.#size = size;
    if (!created) recordTime(performance.now() - begun);
  }

  destroy() {
    for (const plot of this.#plots.values()) plot.destroy();
    this.#plots.clear();
  }
}
