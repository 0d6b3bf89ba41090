// How the samples of a class are split, in words.
import { count } from "../format";
import type { DataClassView } from "../types";

/** "72 to train on, 18 held out". */
export const splitText = ({ train, held_out, test }: DataClassView): string => {
  const parts = [`${count(train)} to train on`, `${held_out ? count(held_out) : "none"} held out`];
  if (test) parts.push(`${count(test)} for a test`);
  return parts.join(", ");
};

/** "messages.csv, row 12". */
export const sampleLabel = ({ file, place }: { file: string; place: string }): string => [file, place].filter(Boolean).join(", ");
