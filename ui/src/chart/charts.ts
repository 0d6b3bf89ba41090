// The three panels together: made once, drawn per scene, and timed. Knows no run, no host and no keys.
import uPlot from "uplot";
import * as kinds from "./kinds";
import { LEFT, SPILL, type Layout } from "./layout";
import { makePanel } from "./panel";
import { aligned, type Scene } from "./scene";

const panels = ["memory", "micro", "loss"] as const;
type PanelName = (typeof panels)[number];

declare global {
  interface Window {
    /** Milliseconds of the last 100 redraws, so that a script can watch the budget of 8 ms. */
    __ebbRedrawMs?: number[];
  }
}

const remember = (ms: number) => {
  const ring = (window.__ebbRedrawMs ??= []);
  if (ring.push(ms) > 100) ring.shift();
};

export class Charts {
  #plots: Record<PanelName, uPlot> | undefined;
  #scene: Scene | undefined;
  #size = "";
  #ratio = 0;

  constructor(private readonly roots: Record<PanelName, HTMLElement>) {}

  draw(scene: Scene, layout: Layout) {
    const begun = performance.now();
    const stale = this.#scene?.colours !== scene.colours || this.#ratio !== uPlot.pxRatio;
    this.#scene = scene;
    if (stale) this.destroy(); // fonts and dashes are fixed at the start; theme, text size and screen change rarely
    this.#ratio = uPlot.pxRatio;
    const made = this.#plots === undefined;
    const width = LEFT + layout.plotWidth + SPILL;
    const size = `${width}x${layout.height}`;
    this.#plots ??= Object.fromEntries(panels.map((name) => [name, this.#make(name, layout, width)])) as Record<PanelName, uPlot>;
    for (const name of panels) {
      const plot = this.#plots[name];
      plot.batch(() => {
        if (this.#size !== size) plot.setSize({ width, height: layout[name].canvasHeight });
        plot.setData(aligned(scene[name]));
      });
    }
    this.#size = size;
    if (!made) remember(performance.now() - begun);
  }

  #make(name: PanelName, layout: Layout, width: number) {
    return makePanel(this.roots[name], kinds[name], () => this.#scene!, layout[name], width);
  }

  destroy() {
    for (const plot of Object.values(this.#plots ?? {})) plot.destroy();
    this.#plots = undefined;
  }
}
