// Formats numbers: 1,215 · 6.1 GB · 26.1 · 93.4 % · 9:04 · 1:12 h. A missing number is "–". A
// gigabyte is 2^30 bytes. Sizes, counts, durations and percentages read as those of the crate
// `format`: tests of both read crates/format/tests/vectors.json.
import { decimal, form, locale, t, type Label, type Text } from "./strings/t";

export const missing = "–";

const KB = 2 ** 10;
const MB = 2 ** 20;
const GB = 2 ** 30;
const TB = 2 ** 40;
let grouped: Intl.NumberFormat | undefined;
/** Made when it is first used: the language is known by then. */
const groupedNumber = () => (grouped ??= new Intl.NumberFormat(locale(), { maximumFractionDigits: 0 }));
const known = (value: number | null | undefined): value is number => value !== null && value !== undefined && Number.isFinite(value);

/** `toFixed`, but a tie is rounded to an even digit, as in Rust. */
const fixed = (value: number, digits: 0 | 1) => {
  // All other ties are rounded up to an even digit anyway.
  const down = digits === 1 ? value % 1 === 0.25 : value % 2 === 0.5;
  return decimal((down ? value - (digits === 1 ? 0.05 : 0.5) : value).toFixed(digits));
};

export const count = (value: number | null | undefined) => (known(value) ? groupedNumber().format(value) : missing);
export const oneDecimal = (value: number | null | undefined) => (known(value) ? decimal(value.toFixed(1)) : missing);
export const loss = (value: number | null | undefined) => (known(value) ? decimal(value.toFixed(value < 99.995 ? 2 : 0)) : missing);
/** "3.2e-4". */
export const rate = (value: number | null | undefined) => (known(value) ? decimal(value.toExponential(1)) : missing);
export const percent = (fraction: number | null | undefined) => (known(fraction) ? `${fixed(fraction * 100, 1)} %` : missing);

/** A value of a regression target in its unit: "149.3", "8.25" below 10, three significant digits
 * below 1, and "4.12e-6" if it is smaller than a ten-thousandth. */
export const inUnit = (value: number | null | undefined) => {
  if (!known(value)) return missing;
  // Each limit is where fewer decimals would round up to the next power of ten.
  const size = Math.abs(value);
  if (size >= 9.995) return decimal(value.toFixed(1));
  if (size >= 0.9995 || size === 0) return decimal(value.toFixed(2));
  return decimal(size >= 1e-4 ? value.toFixed(2 - Math.floor(Math.log10(size * 1.0005))) : value.toExponential(2));
};
export const gigabytes = (bytes: number | null | undefined) => (known(bytes) ? fixed(bytes / GB, 1) : missing);

/** "6.1 GB", "512 MB", "2.6 MB", "48 kB", "812 bytes". */
export const size = (bytes: number) => {
  // Each limit is where the smaller unit would round up to four digits.
  if (bytes >= 999.95 * GB) return `${fixed(bytes / TB, 1)} TB`;
  if (bytes >= 999.5 * MB) return `${fixed(bytes / GB, 1)} GB`;
  if (bytes >= 9.95 * MB) return `${fixed(bytes / MB, 0)} MB`;
  if (bytes >= 999.5 * KB) return `${fixed(bytes / MB, 1)} MB`;
  if (bytes >= KB) return `${fixed(bytes / KB, 0)} kB`;
  return form(bytes, fixed(bytes, 0), "{n} byte", "{n} bytes");
};

/** "9:04" below an hour, else "1:12 h". */
export const duration = (seconds: number | null | undefined) => {
  if (!known(seconds) || seconds < 0) return missing;
  const whole = Math.floor(seconds);
  const pair = (high: number, low: number) => `${high}:${String(low).padStart(2, "0")}`;
  return whole < 3600 ? pair(Math.floor(whole / 60), whole % 60) : `${pair(Math.floor(whole / 3600), Math.floor((whole % 3600) / 60))} h`;
};

/** A tick of the time axis: "9:00", "1:30:00", "6 h". */
export const tickClock = (ms: number) => (ms >= 3_600_000 && ms % 3_600_000 === 0 ? `${ms / 3_600_000} h` : clock(ms));

/** A time on the run's clock: "9:04", "1:12:30". */
export const clock = (ms: number) => {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (value: number) => String(value).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes}:${two(seconds % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`;
};

/** "14:02". */
export const clockTime = (at: Date) => `${at.getHours()}:${String(at.getMinutes()).padStart(2, "0")}`;
/** How long ago something was: "12 s ago", "3 min ago", "1:12 h ago". */
export const ago = (ms: number) => {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return t("{time} ago", { time: `${seconds} s` });
  return t("{time} ago", { time: seconds < 3600 ? `${Math.floor(seconds / 60)} min` : duration(seconds) });
};

/** "14:02" today, "12 November, 14:02" on another day. */
export const timeOfDay = (unixMs: number, now: Date) => {
  const at = new Date(unixMs);
  const time = clockTime(at);
  if (at.toDateString() === now.toDateString()) return time;
  return `${at.toLocaleDateString(locale(), { day: "numeric", month: "long" })}, ${time}`;
};

/** "1 class", "20 classes": `many` and `one` have the number as `{n}`. */
export const plural = (value: number, one: string, many: Text, values?: Record<string, string | number>) => form(value, count(value), one, many, values);
/** "3 images": the samples of a task, which Rust calls "image", "text", "document" or "window". */
export const samples = (value: number, noun: string) => plural(value, `{n} ${noun}`, `{n} ${noun}s` as Text);
/** "images". */
export const manySamples = (noun: string) => t(`${noun}s` as Label);

/** Number and unit of `size`: "840", "MB". */
export const amount = (bytes: number) => {
  const [value = missing, unit = ""] = size(bytes).split(" ");
  return { value, unit };
};
