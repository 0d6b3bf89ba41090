// What of a folder is used: changes of the choices, as the data page makes them.
import type { Label } from "../strings/t";
import type { DataChoices, TableView } from "../types";

/** The name under which a class is trained. */
export const trainedAs = (choices: DataChoices, name: string): string =>
  choices.merge_classes.find(({ classes }) => classes.includes(name))?.name ?? name;

export const isLeftOut = (choices: DataChoices, name: string): boolean => choices.leave_out_classes.includes(name);

export const withClassLeftOut = (choices: DataChoices, name: string, out: boolean): DataChoices => {
  const others = choices.leave_out_classes.filter((one) => one !== name);
  return { ...choices, leave_out_classes: out ? [...others, name] : others };
};

/** Trains a class under another name; under the name of another class, it becomes part of that. */
export const withTrainedAs = (choices: DataChoices, name: string, as: string): DataChoices => {
  const merges = choices.merge_classes
    .map((merge) => ({ ...merge, classes: merge.classes.filter((one) => one !== name) }))
    .filter(({ classes }) => classes.length > 0);
  const wanted = as.trim();
  if (wanted === "" || wanted === name) return { ...choices, merge_classes: merges };
  const known = merges.some((merge) => merge.name === wanted);
  return {
    ...choices,
    merge_classes: known
      ? merges.map((merge) => (merge.name === wanted ? { ...merge, classes: [...merge.classes, name] } : merge))
      : [...merges, { name: wanted, classes: [name] }],
  };
};

/** The roles that a column can have, as value and label. */
export const roles = (images: boolean): [string, Label][] =>
  images ? [["", "not used"], ["label", "class"], ["target", "target"]] : [["", "not used"], ["text", "text"], ["label", "label"]];

/** Gives a column another role. A role that a column loses is recognized again. */
export const withRole = (choices: DataChoices, table: TableView, column: string, role: string): DataChoices => {
  const had = table.roles[table.columns.indexOf(column)] ?? "";
  const next = { ...choices };
  if (had === "text" && choices.text_column === column) next.text_column = null;
  if (had === "label" && choices.label_column === column) next.label_column = null;
  if (role === "text") next.text_column = column;
  if (role === "label") next.label_column = column;
  if (role === "target" || had === "target") {
    const targets = table.columns.filter((_, place) => table.roles[place] === "target");
    next.targets = role === "target" ? [...targets, column] : targets.filter((one) => one !== column);
  }
  return next;
};

/** Whether everything is used as Ebb recognizes it. */
export const usesAll = ({ text_column, label_column, targets, leave_out_classes, merge_classes, leave_duplicates_out }: DataChoices): boolean =>
  !text_column && !label_column && targets.length + leave_out_classes.length + merge_classes.length === 0 && !leave_duplicates_out;

export const NONE: DataChoices = { text_column: null, label_column: null, targets: [], leave_out_classes: [], merge_classes: [], leave_duplicates_out: false, held_out_fraction: null, group_by: null };
