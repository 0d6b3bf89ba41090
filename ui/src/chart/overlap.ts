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
