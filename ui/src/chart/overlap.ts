// Keeps names and texts from covering each other.

/** Moves the positions `wanted` so that they are at least `gap` apart and between `ceiling`
 * (top) and `floor`. Positions that are equal stay in their order. */
export const pushApart = (wanted: number[], gap: number, ceiling: number, floor: number): number[] => {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a]! - wanted[b]! || a - b);
  const placed = [...wanted];
  let limit = ceiling;
  for (const i of order) {
    placed[i] = Math.max(placed[i]!, limit);
    limit = placed[i]! + gap;
  }
  limit = floor;
  for (const i of order.reverse()) {
    placed[i] = Math.min(placed[i]!, limit);
    limit = placed[i]! - gap;
  }
  return placed;
};

/** Tells for each text, oldest first, whether it is drawn. Of two that overlap, the newer one
 * is. */
export const keepNewest = (texts: { left: number; right: number }[]): boolean[] => {
  const drawn: { left: number; right: number }[] = [];
  const keep = texts.map(() => false);
  for (let i = texts.length - 1; i >= 0; i--) {
    const text = texts[i]!;
    if (drawn.some((other) => text.left < other.right && other.left < text.right)) continue;
    drawn.push(text);
    keep[i] = true;
  }
  return keep;
};

/** Distance of a label from its change. */
const BESIDE = 10;
/** Half the width of a triangle, and a little space. */
const SHAPE = 7;

/** The left ends of the labels of changes, oldest first; `null` for one that has no space. A label
 * is right of its change, or left of it at the end of the plot. It covers neither a newer label nor
 * another change: `lines` are the positions of all. */
export const placeLabels = (changes: { x: number; width: number }[], lines: number[], from: number, to: number): (number | null)[] => {
  const ends = changes.map(({ x, width }) => {
    const left = x + BESIDE + width > to ? x - BESIDE - width : x + BESIDE;
    return { x, left, right: left + width };
  });
  const free = ends.map(({ x, left, right }) => left >= from && !lines.some((line) => line !== x && line + SHAPE > left && line - SHAPE < right));
  const shown = ends.filter((_, i) => free[i]).map(({ left, right }) => ({ left, right: right + 8 }));
  const keep = keepNewest(shown);
  let place = 0;
  return ends.map(({ left }, i) => (free[i] && keep[place++] ? left : null));
};
