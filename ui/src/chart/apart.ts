// Pushes names and texts apart so that none covers another. Plain numbers in, plain numbers out.

/** Places for names that would like to stand at `wanted`: at least `gap` apart, none below `floor` or above `ceiling`. */
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

/** Which of the texts, oldest first, can be written without overlap: the newer one wins. */
export const keepNewest = (texts: { left: number; right: number }[]): boolean[] => {
  const kept: { left: number; right: number }[] = [];
  const keep = texts.map(() => false);
  for (let i = texts.length - 1; i >= 0; i--) {
    const text = texts[i]!;
    if (kept.some((other) => text.left < other.right && other.left < text.right)) continue;
    kept.push(text);
    keep[i] = true;
  }
  return keep;
};
