// Formats numbers: 1,215 · 6.1 GB · 26.1 · 93.4 % · 9:04 · 1:12 h. A missing number is "–". A
// gigabyte is 2^30 bytes.
export const missing = "–";

const GB = 2 ** 30;
const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const known = (value: number | null | undefined): value is number => value !== null && value !== undefined && Number.isFinite(value);

export const count = (value: number | null | undefined) => (known(value) ? grouped.format(value) : missing);
export const oneDecimal = (value: number | null | undefined) => (known(value) ? value.toFixed(1) : missing);
export const loss = (value: number | null | undefined) => (known(value) ? value.toFixed(value < 99.995 ? 2 : 0) : missing);
/** "3.2e-4". */
export const rate = (value: number | null | undefined) => (known(value) ? value.toExponential(1) : missing);
export const percent = (fraction: number | null | undefined) => (known(fraction) ? `${(fraction * 100).toFixed(1)} %` : missing);
export const gigabytes = (bytes: number | null | undefined) => (known(bytes) ? (bytes / GB).toFixed(1) : missing);

/** "2.6 MB", "840 kB", "6.1 GB". */
export const size = (bytes: number) => {
  if (bytes >= GB) return `${gigabytes(bytes)} GB`;
  return bytes >= 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MB` : `${grouped.format(Math.ceil(bytes / 1024))} kB`;
};

/** "9:04" below an hour, else "1:12 h". */
export const duration = (seconds: number | null | undefined) => {
  if (!known(seconds)) return missing;
  const rounded = Math.max(0, Math.round(seconds));
  const pair = (high: number, low: number) => `${high}:${String(low).padStart(2, "0")}`;
  return rounded < 3600 ? pair(Math.floor(rounded / 60), rounded % 60) : `${pair(Math.floor(rounded / 3600), Math.floor((rounded % 3600) / 60))} h`;
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
  if (seconds < 60) return `${seconds} s ago`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min ago` : `${duration(seconds)} ago`;
};

/** "14:02" today, "12 November, 14:02" on another day. */
export const timeOfDay = (unixMs: number, now: Date) => {
  const at = new Date(unixMs);
  const time = clockTime(at);
  if (at.toDateString() === now.toDateString()) return time;
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "long" })}, ${time}`;
};

/** "1 class", "20 classes". */
export const plural = (value: number, one: string, many: string) => `${count(value)} ${value === 1 ? one : many}`;

/** Number and unit of `size`: "840", "MB". */
export const amount = (bytes: number) => {
  const [value = missing, unit = ""] = size(bytes).split(" ");
  return { value, unit };
};
