// Why a plan does not fit, and what to do first: undo what was changed last, if that would help.
import { gigabytes, size } from "../format";
import { t } from "../strings/t";
import type { DoesNotFitView, PlanSettings } from "../types";

export interface Situation {
  refusal: DoesNotFitView;
  /** The setting that was changed last; `null` if none was. */
  last: keyof PlanSettings | null;
  /** What the budget would gain if the slider were at its right end. */
  slider_bytes: number;
  /** Whether the samples are images. */
  images: boolean;
}

const undo = (last: keyof PlanSettings | null, images: boolean): string | undefined => {
  if (last === "resolution") return images ? t("choose a smaller image size") : t("choose a shorter length");
  if (last === "model" || last === "from") return t("choose a smaller model");
  return last === "trains" ? t("train a smaller part") : undefined;
};

const amount = (bytes: number) => (bytes >= 2 ** 30 / 10 ? `${gigabytes(bytes)} GB` : size(bytes));

/** "Does not fit: training needs 1.2 GB, and 0.4 GB is left for Ebb. Move the slider to the right,
 * or close other apps." */
export const remedy = ({ refusal, last, slider_bytes, images }: Situation): string => {
  const { needed_bytes, available_bytes } = refusal;
  const needed = amount(needed_bytes);
  const nothing = available_bytes < 2 ** 20;
  const why = nothing ? t("Does not fit: training needs {needed}, but nothing is left for Ebb.", { needed }) : t("Does not fit: training needs {needed}, but only {left} is left for Ebb.", { needed, left: amount(available_bytes) });
  const enough = available_bytes + slider_bytes >= needed_bytes;
  const move = slider_bytes > 0 && (enough || last === "max_system_fraction") ? t("move the slider to the right") : undefined;
  const first = last === "max_system_fraction" ? move : (undo(last, images) ?? move);
  const smaller = images ? t("choose smaller images or another model") : t("choose a shorter length or another model");
  const others = [...new Set([first, move, t("close other apps"), undo(last, images) ?? (enough ? undefined : smaller)])].filter((one) => one !== undefined);
  const list = t("{others}, or {last}", { others: others.slice(0, -1).join(", "), last: others.at(-1)! });
  return `${why} ${list[0]!.toUpperCase()}${list.slice(1)}.`;
};
