// The context menus of classes and samples. They are loaded with the pages that have them.
import { session } from "../appState.svelte";
import { percent } from "../format";
import type { ClassResultView, ReportView } from "../types";
import { isText, menuPosition } from "../shell/nativeBehavior";
import { contextMenu, offer } from "./perform.svelte";
import { t } from "../strings/t";

/** Copies a text. Call it at once when a menu item was chosen: the system allows it only then. */
export const copyText = async (text: string) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    session.error = t("The text could not be copied, because the system refused it.");
  }
};

/** The number of the class that this class is taken for most often; `null` if there is no mistake. */
export const mostFrequentMistake = ({ confusion }: Pick<ReportView, "confusion">, cls: number): number | null => {
  const mistakes = confusion.filter(([is, said]) => is === cls && said !== cls);
  return mistakes.toSorted((a, b) => b[2] - a[2])[0]?.[1] ?? null;
};

/** A row of the table of classes, as a spreadsheet takes it. */
export const classText = ({ name, samples, precision, recall, f1 }: ClassResultView): string =>
  [name, samples, percent(precision), percent(recall), percent(f1)].join("\t");

/** `select` shows the samples of a cell of the confusion matrix. */
export const classCommands = (report: ReportView, row: ClassResultView, select: (cell: [number, number]) => unknown) => {
  const cls = report.classes.indexOf(row);
  const mistake = mostFrequentMistake(report, cls);
  return {
    "class-right": () => select([cls, cls]),
    ...(mistake !== null && { "class-mistake": () => select([cls, mistake]) }),
    "copy-class": () => copyText(classText(row)),
  };
};

export const sampleCommands = (file: string, reveal: () => unknown) => ({
  "reveal-sample": reveal,
  // A window of a document has no file of its own.
  ...(file && { "copy-sample": () => copyText(file.split("/").at(-1)!) }),
});

/** Offers the actions of the item that has the focus in the palette. `list` is the element of all
 * items; `commands` are those of the item at a place. Returns a function that ends this. */
export const offerFocused = (list: () => Element | null, commands: (place: number) => Record<string, () => unknown>) =>
  offer(() => {
    const place = [...(list()?.children ?? [])].findIndex((item) => item.contains(document.activeElement));
    return place < 0 ? {} : commands(place);
  });

export const classMenu = (event: MouseEvent, ...about: Parameters<typeof classCommands>) => {
  event.preventDefault();
  void contextMenu("class", classCommands(...about), menuPosition(event));
};

/** A text keeps the system's menu, which copies the selected part. */
export const sampleMenu = (event: MouseEvent, ...about: Parameters<typeof sampleCommands>) => {
  if (isText(event.target)) return;
  event.preventDefault();
  void contextMenu("sample", sampleCommands(...about), menuPosition(event));
};
