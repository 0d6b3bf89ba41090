// The shapes of Rust's answers, gathered under one name. Everything here is generated from Rust.
export type { CommandError } from "./viewtypes";
export type { Figures } from "./generated/Figures";
export type { InspectionView } from "./viewtypes";
export type { Level } from "./generated/Level";
export type { LevelSpan } from "./generated/LevelSpan";
export type { MachineView } from "./viewtypes";
export type { Mark } from "./generated/Mark";
export type { PlanSettings } from "./viewtypes";
export type { PlanView } from "./viewtypes";
export type { PullHeader } from "./generated/PullHeader";
export type { RunEvent } from "./generated/RunEvent";
export type { RunRequest } from "./viewtypes";
export type { RunRow } from "./viewtypes";
export type { RunStatus } from "./generated/RunStatus";
export type { Show } from "./viewtypes";
export type { StatusLine } from "./generated/StatusLine";
export type { Welcome } from "./viewtypes";
