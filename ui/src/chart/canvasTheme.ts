// Colors and fonts for a canvas. A custom property reads as its text ("light-dark(…)"), so each is
// resolved once per theme on a probe element.
import { SERIES } from "./series";

const names = [
  "bg", "text", "text-2", "text-3", "grid", "control-edge", "level-warning", "level-critical", "level-warning-text", "level-critical-text",
  "level-warning-wash", "level-critical-wash",
] as const;

export interface Colors extends Record<(typeof names)[number], string> {
  /** By token. */
  series: Record<string, string>;
  /** The fill below steps. */
  faded: string;
  captionPx: number;
  /** Fonts. */
  caption: string;
  strong: string;
}

/** "rgb(1, 2, 3)" with an opacity. */
const fade = (color: string, opacity: number) => color.replace(/^rgb\((.*)\)$/, `rgba($1, ${opacity})`);

export const resolveColors = (): Colors => {
  const probe = document.createElement("span");
  document.body.append(probe);
  probe.style.display = "none";
  const style = getComputedStyle(probe);
  const color = (name: string) => {
    probe.style.color = `var(--${name})`;
    return style.color;
  };
  const colors = Object.fromEntries(names.map((name) => [name, color(name)])) as Record<(typeof names)[number], string>;
  const series = Object.fromEntries(SERIES.map((row) => [row.color, color(row.color)]));
  probe.style.fontSize = "var(--size-caption)";
  const captionPx = parseFloat(style.fontSize);
  const family = style.fontFamily;
  const resolved = {
    ...colors,
    series,
    faded: fade(color("series-activations"), 0.22),
    captionPx,
    caption: `${captionPx}px ${family}`,
    strong: `500 ${captionPx}px ${family}`,
  };
  probe.remove();
  return resolved;
};

/** Calls `changed` when the system's theme or contrast, or `data-theme` on the root, changes.
 * Returns a function that stops this. */
export const onThemeChange = (changed: () => void): (() => void) => {
  const media = ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"].map((query) => matchMedia(query));
  for (const one of media) one.addEventListener("change", changed);
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return () => {
    for (const one of media) one.removeEventListener("change", changed);
    observer.disconnect();
  };
};
