//! Where the edges of power-of-two classes lie. They are powers of two in bytes, so in samples they lie anywhere: for one
//! well-known model at 5.3, 10.7, 21.3. Every place that is possible is followed, and the pieces tell which one is true.
//! A place keeps sums over all its points and forgets none: a wrong one misses a whole class somewhere, and while pieces stay within
//! one class for an hour nothing shows that again. It is a small stretch, which overlaps with the next: what lies in it may belong
//! to the class below or above.
//!
//! How much of a sample is rounded at all is not known either: for some shares of it every place is followed apart.

use serde::{Deserialize, Serialize};

/// Shares of a sample's memory that may lie in classes so fine that they are none, beside one of all of it.
const FINE: [f64; 3] = [0.0, 1.0 / 3.0, 2.0 / 3.0];
/// Places of the edges that are told apart within an octave.
const PLACES: u32 = 64;
/// By so much of a place its stretch reaches beyond it on both sides: costs are whole numbers, and peaks are not that exact.
const HALF: f64 = 0.5;
/// What is so near in a stretch is the same place.
const ROUNDING: f64 = 1e-6;
/// A peak is measured no better than this, as a share of it.
const NOISE: f64 = 0.012;
/// A place is possible while its squared errors, in units of the noise's square, exceed those of the best by no more.
const DOUBT: f64 = 16.0;
/// Rooms that differ relatively by less (squared) are one: no slope can be drawn through them.
const ONE_ROOM: f64 = 1e-6;

/// One place of the edges, with what is needed for the straight line through its points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stair {
    /// Share of a sample's memory that is taken as it is; the rest is rounded up.
    #[serde(default)]
    fine: f64,
    /// In the stretch that holds an edge, samples: the others lie at twice, four times, half of it, and so on.
    edge: f64,
    /// How far into the stretch, `0.0..=1.0`, samples were seen that belong to the class below.
    #[serde(default)]
    below: f64,
    /// Over points of `r` rooms and `y` bytes, each with the weight 1/y², so that errors are relative.
    #[serde(default)]
    sums: Sums,
}

/// Weighted sums of 1, r, r², y, r·y, y², and how many points there are by weight.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Sums {
    one: f64,
    r: f64,
    rr: f64,
    y: f64,
    ry: f64,
    yy: f64,
    points: f64,
}

/// The line through the points: bytes at no room, and for each.
struct Fitted {
    state_bytes: f64,
    room_bytes: f64,
}

impl Fitted {
    fn at(&self, room: f64) -> f64 {
        self.state_bytes + self.room_bytes * room
    }
}

/// Where samples lie as one of the places has it.
#[derive(Clone, Copy)]
enum Place {
    /// In one class for certain.
    Clear,
    /// So far into the stretch that holds the edge.
    AtTheEdge(f64),
}

impl Sums {
    /// Squared relative spread of the rooms.
    fn spread(&self) -> f64 {
        (self.one * self.rr / (self.r * self.r).max(f64::MIN_POSITIVE) - 1.0).max(0.0)
    }

    /// Least squares; neither the state nor a room takes less than nothing. `None` where all points are in one room.
    fn line(&self) -> Option<Fitted> {
        if self.spread() < ONE_ROOM {
            return None;
        }
        let room_bytes =
            (self.one * self.ry - self.r * self.y) / (self.one * self.rr - self.r * self.r);
        let state_bytes = (self.y - room_bytes * self.r) / self.one;
        Some(match (state_bytes < 0.0, room_bytes < 0.0) {
            (_, true) => Fitted {
                state_bytes: self.y / self.one,
                room_bytes: 0.0,
            },
            (true, _) => Fitted {
                state_bytes: 0.0,
                room_bytes: self.ry / self.rr,
            },
            _ => Fitted {
                state_bytes,
                room_bytes,
            },
        })
    }

    /// Sum of the squared relative errors.
    fn wrong(&self) -> f64 {
        let flat = || Fitted {
            state_bytes: self.y / self.one,
            room_bytes: 0.0,
        };
        let Fitted {
            state_bytes: a,
            room_bytes: b,
        } = self.line().unwrap_or_else(flat);
        let of_model = a * a * self.one + 2.0 * a * b * self.r + b * b * self.rr;
        (self.yy - 2.0 * a * self.y - 2.0 * b * self.ry + of_model).max(0.0)
    }
}

impl Stair {
    pub(super) fn all() -> Vec<Self> {
        let edge = |place| (f64::from(place) / f64::from(PLACES)).exp2();
        let at = |fine, place| Self {
            fine,
            edge: edge(place),
            below: 0.0,
            sums: Sums::default(),
        };
        let rounded = FINE
            .iter()
            .flat_map(|&fine| (0..PLACES).map(move |place| at(fine, place)));
        // Where nothing is rounded there is one place.
        rounded.chain([at(1.0, 0)]).collect()
    }

    /// What a piece takes room for, in samples, where as many as `room` fit the class of what is rounded.
    fn taken(&self, samples: f64, room: f64) -> f64 {
        self.fine * samples + (1.0 - self.fine) * room
    }

    /// Samples that there is room for in the class below the next edge, and where they lie: in its stretch there may be room for twice
    /// as many.
    fn room(&self, samples: f64) -> (f64, Place) {
        if samples <= 0.0 {
            return (0.0, Place::Clear);
        }
        let octaves = (samples / self.edge).log2();
        let class = (octaves - HALF / f64::from(PLACES)).ceil();
        let before = (class - octaves) * f64::from(PLACES);
        let place = match before < 1.0 + HALF {
            true => Place::AtTheEdge(1.0 - (before + HALF) / (1.0 + 2.0 * HALF)),
            false => Place::Clear,
        };
        (self.edge * class.exp2(), place)
    }

    /// Bytes at `samples`: in the stretch of an edge those of the class above, where not as many were seen to belong below. Where
    /// all points were in one room, larger ones are taken to need in proportion: the most that they can.
    fn estimate(&self, samples: f64) -> f64 {
        let room = match self.room(samples) {
            (room, Place::AtTheEdge(into)) if into > self.below => 2.0 * room,
            (room, _) => room,
        };
        let room = self.taken(samples, room);
        match self.sums.line() {
            Some(line) => line.at(room),
            None => {
                let mean = self.sums.y / self.sums.one;
                mean * (room * self.sums.one / self.sums.r).max(1.0)
            }
        }
    }

    /// Learns a peak of `bytes` at `samples`.
    pub(super) fn learn(&mut self, samples: f64, bytes: f64) {
        let (below, place) = self.room(samples);
        let y = bytes.max(1.0);
        let mut r = below;
        if let Place::AtTheEdge(into) = place {
            // Before there is a line nobody can say which class it is of: it teaches nothing here.
            let Some(line) = self.sums.line() else {
                return;
            };
            let off = |room: f64| (line.at(self.taken(samples, room)) - y).abs();
            if off(2.0 * below) < off(below) {
                r = 2.0 * below;
                self.below = self.below.min(into - ROUNDING).max(0.0);
            } else {
                self.below = self.below.max(into + ROUNDING);
            }
        }
        let (r, weight) = (self.taken(samples, r), 1.0 / (y * y));
        let sums = &mut self.sums;
        sums.one += weight;
        sums.r += weight * r;
        sums.rr += weight * r * r;
        sums.y += weight * y;
        sums.ry += weight * r * y;
        sums.yy += weight * y * y;
        sums.points += 1.0;
    }

    /// Every peak is higher by so many bytes, or lower.
    pub(super) fn move_state(&mut self, bytes: f64) {
        let sums = &mut self.sums;
        sums.yy += 2.0 * bytes * sums.y + bytes * bytes * sums.one;
        sums.ry += bytes * sums.r;
        sums.y += bytes * sums.one;
    }
}

/// What the likeliest place says of the state, bytes; `None` before a slope is known.
pub(super) fn state_bytes(stairs: &[Stair]) -> Option<f64> {
    let known = stairs
        .iter()
        .filter_map(|stair| Some((stair.sums.wrong(), stair.sums.line()?)));
    let best = known.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(best.1.state_bytes)
}

/// The most that any place says of `samples` which may be the true one, bytes; `None` before a first point.
pub(super) fn estimate(stairs: &[Stair], samples: f64) -> Option<f64> {
    let known: Vec<(&Stair, f64)> = stairs
        .iter()
        .filter(|stair| stair.sums.points > 0.0)
        .map(|stair| (stair, stair.sums.wrong()))
        .collect();
    let (best, least) = known.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    // Where even the best place is wrong by more than noise, the truth is no single staircase: then more are possible.
    let noise = (NOISE * NOISE).max(least / best.sums.points);
    let possible = known
        .iter()
        .filter(|(_, wrong)| *wrong <= least + DOUBT * noise);
    possible
        .map(|(stair, _)| stair.estimate(samples))
        .reduce(f64::max)
}
