// The confusion matrix as shapes: sizes, and the cells that are not zero.
import { samples } from "../format";
import { t } from "../strings/t";
import type { ReportView } from "../types";
import type { Cell } from "./page.svelte";

export interface Layout {
  /** Side of a cell in pixels. */
  cell: number;
  /** Space for the names of the rows and of the columns. */
  left: number;
  top: number;
  /** Whether names and counts are large enough to be read. */
  readable: boolean;
}

const LARGEST_CELL = 88;
const SMALLEST_TEXT = 15;

/** The matrix of `classes` classes in `width` by `height` pixels. */
export const layout = (classes: number, longest: number, width: number, height: number): Layout => {
  const names = Math.min(132, 12 + 6.6 * longest);
  const fit = (margin: number) => Math.min(LARGEST_CELL, Math.floor(Math.min((width - margin - 2) / classes, (height - margin - 2) / classes)));
  const readable = fit(names) >= SMALLEST_TEXT;
  const margin = readable ? names : 4;
  return { cell: Math.max(1, fit(margin)), left: margin, top: margin, readable };
};

/** How many samples of a class were taken for another, by cell. */
export const counts = (report: ReportView) => new Map(report.confusion.map(([is, said, count]) => [is * report.classes.length + said, count]));

/** The strength of a correct cell, from 0.16 to 0.46, by the fraction of the class that is right. */
export const strength = (fraction: number) => 0.16 + 0.3 * Math.max(0, (fraction - 0.5) / 0.5);

/** The cell after a key; `null` if the key does not move. */
export const moved = ([row, column]: Cell, key: string, classes: number): Cell | null => {
  const within = (value: number) => Math.max(0, Math.min(classes - 1, value));
  if (key === "ArrowUp") return [within(row - 1), column];
  if (key === "ArrowDown") return [within(row + 1), column];
  if (key === "ArrowLeft") return [row, within(column - 1)];
  if (key === "ArrowRight") return [row, within(column + 1)];
  if (key === "Home") return [row, 0];
  if (key === "End") return [row, classes - 1];
  return null;
};

/** "llama, predicted as kangaroo: 2 images" */
export const described = (report: ReportView, [row, column]: Cell, sample: string) => {
  const count = report.confusion.find(([is, said]) => is === row && said === column)?.[2] ?? 0;
  const name = (place: number) => report.classes[place]?.name ?? "";
  const counted = samples(count, sample);
  return row === column ? t("{name}, recognized: {samples}", { name: name(row), samples: counted }) : t("{is}, predicted as {said}: {samples}", { is: name(row), said: name(column), samples: counted });
};
