// Colours and type for a canvas. A custom property reads as its text ("light-dark(…)"), so each is resolved once per
// theme on a probe element.
const names = [
  "bg", "text", "text-2", "text-3", "grid", "control-edge", "level-warning", "level-critical", "level-warning-text", "level-critical-text",
  "level-warning-wash", "level-critical-wash", "series-system", "series-others", "series-state", "series-activations",
  "series-budget", "series-raw", "series-smoothed", "series-evaluation",
] as const;

export type Colours = Record<(typeof names)[number], string> & { caption: string; strong: string; captionPx: number; faded: string };

/** "rgb(1, 2, 3)" with an opacity. */
const fade = (colour: string, opacity: number) => colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${opacity})`);

export const resolveColours = (): Colours => {
  const probe = document.createElement("span");
  document.body.append(probe);
  probe.style.display = "none";
  const style = getComputedStyle(probe);
  const colour = (name: string) => {
    probe.style.color = `var(--${name})`;
    return style.color;
  };
  const colours = Object.fromEntries(names.map((name) => [name, colour(name)])) as Record<(typeof names)[number], string>;
  probe.style.fontSize = "var(--size-caption)";
  const captionPx = parseFloat(style.fontSize);
  const family = style.fontFamily;
  probe.remove();
  return {
    ...colours,
    captionPx,
    caption: `${captionPx}px ${family}`,
    strong: `500 ${captionPx}px ${family}`,
    faded: fade(colours["series-activations"], 0.22),
  };
};

/** Calls back when the system's theme, contrast or the `data-theme` on the root changed. */
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
