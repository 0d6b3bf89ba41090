// Splits a long name in two. If space is short, the first part is cut off at its end, so that names
// that differ only at their beginning or end can still be told apart.
const LONG = 18;
const END = 9;

export const splitName = (name: string): [string, string] => {
  const letters = [...name];
  return letters.length > LONG ? [letters.slice(0, -END).join(""), letters.slice(-END).join("")] : [name, ""];
};
