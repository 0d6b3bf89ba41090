// How the samples of a class are split, in words.
import { count } from "../format";
import { translate, t } from "../strings/t";
import type { DataClassView } from "../types";

/** "72 to train on, 18 held out". */
export const splitText = ({ train, held_out, test }: DataClassView): string => {
  const parts = [t("{n} to train on", { n: count(train) }), held_out ? t("{n} held out", { n: count(held_out) }) : t("none held out")];
  if (test) parts.push(t("{n} for testing", { n: count(test) }));
  return parts.join(", ");
};

/** "messages.csv, row 12". */
export const sampleLabel = ({ file, place }: { file: string; place: string }): string => [file, translate(place)].filter(Boolean).join(", ");
