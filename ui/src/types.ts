// The shapes of Rust's answers, gathered under one name. Everything here is generated from Rust.
export type { CommandError } from "./generated/CommandError";
export type { Figures } from "./generated/Figures";
export type { InspectionView } from "./generated/InspectionView";
export type { Level } from "./generated/Level";
export type { LevelSpan } from "./generated/LevelSpan";
export type { MachineView } from "./generated/MachineView";
export type { Mark } from "./generated/Mark";
export type { PlanSettings } from "./generated/PlanSettings";
export type { PlanView } from "./generated/PlanView";
export type { PullHeader } from "./generated/PullHeader";
export type { RunEvent } from "./generated/RunEvent";
export type { RunRequest } from "./generated/RunRequest";
export type { RunRow } from "./generated/RunRow";
export type { RunStatus } from "./generated/RunStatus";
export type { Show } from "./generated/Show";
export type { StatusLine } from "./generated/StatusLine";
export type { Welcome } from "./generated/Welcome";
