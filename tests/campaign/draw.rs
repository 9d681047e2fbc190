//! Draws a schedule from a seed.

use fastrand::Rng;

use super::plan::{
    Ask, At, Beginning, CallPlan, Cut, Form, Ms, Other, Process, SLOTS, Schedule, Server, Store,
    Turn,
};

/// Until when faults begin, of calls that mostly last for less than a second.
const FAULTS_MS: u64 = 900;

/// The schedule of a seed.
pub(crate) fn schedule(seed: u64) -> Schedule {
    let mut draw = Draw(Rng::with_seed(seed));
    let (server, is_settled) = (draw.server(), draw.has(60));
    let calls = (0..draw.between(1, 4)).map(|_| draw.call(server)).collect();
    let mut schedule = Schedule {
        seed,
        server,
        is_settled,
        calls,
        processes: Vec::new(),
        store: Vec::new(),
        lines: Vec::new(),
    };
    if draw.has(15) {
        return schedule;
    }
    if draw.has(45) {
        schedule.processes = draw.kills(&schedule.calls);
    } else if draw.has(25) {
        schedule.processes = draw.roll();
    }
    if draw.has(30) {
        schedule.store.push(draw.outage());
    }
    if draw.has(40) {
        let count = draw.between(1, 3);
        schedule.lines = (0..count).map(|_| draw.cut()).collect();
        schedule.lines.sort_by_key(|event| event.at);
    }
    schedule
}

struct Draw(Rng);

impl Draw {
    fn has(&mut self, percent: u64) -> bool {
        self.0.u64(0..100) < percent
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.u64(least..=most)
    }

    fn ms(&mut self, least: u64, most: u64) -> Ms {
        Ms(self.between(least, most))
    }

    fn maybe_ms(&mut self, percent: u64, most: u64) -> Option<Ms> {
        self.has(percent).then(|| self.ms(0, most))
    }

    fn slot(&mut self) -> usize {
        self.0.usize(0..SLOTS)
    }

    /// Most often when most is going on.
    fn moment(&mut self) -> Ms {
        match self.between(0, 9) {
            0 => self.ms(0, 150),
            1..=6 => self.ms(150, 600),
            _ => self.ms(0, FAULTS_MS),
        }
    }

    fn server(&mut self) -> Server {
        Server {
            resumes: self.has(75),
            has_general_stream: self.has(70),
            answers_cancelled: self.has(50),
        }
    }

    fn call(&mut self, server: Server) -> CallPlan {
        let asks = (0..self.between(0, 3)).map(|_| self.ask(server)).collect();
        CallPlan {
            at: self.ms(0, 200),
            by: self.0.usize(0..2),
            to: self.slot(),
            is_repeatable: self.has(25),
            wants_progress: self.has(40),
            leaves_at_once: self.maybe_ms(3, 80),
            asks,
            works: self.work(),
        }
    }

    /// Now and then longer than a leg may last.
    fn work(&mut self) -> Ms {
        let most = if self.has(15) { 700 } else { 60 };
        self.ms(0, most)
    }

    fn ask(&mut self, server: Server) -> Ask {
        let form = match self.between(0, 99) {
            0..=24 => Form::Pair,
            25..=31 if server.has_general_stream => Form::Aside,
            _ => Form::One,
        };
        Ask {
            works: self.work(),
            form,
            turn: self.turn(form),
        }
    }

    fn turn(&mut self, form: Form) -> Turn {
        let rival = self.other(8, 30);
        Turn {
            thinks: self.think(),
            to: self.slot(),
            declines: self.has(12),
            begins: match self.between(0, 99) {
                0..=7 => Beginning::Wrongly,
                8..=29 if form == Form::Pair => Beginning::InPart,
                _ => Beginning::Rightly,
            },
            leaves: self.maybe_ms(15, 80),
            // A twin of one of two rivals would say the same as that one.
            twin: self.other(30, 15).filter(|_| rival.is_none()),
            late: self.other(15, 400).filter(|_| rival.is_none()),
            rival,
            abandons: self.has(1),
        }
    }

    fn think(&mut self) -> Ms {
        let most = if self.has(20) { 500 } else { 100 };
        self.ms(0, most)
    }

    fn other(&mut self, percent: u64, most: u64) -> Option<Other> {
        self.has(percent).then(|| Other {
            after: self.ms(0, most),
            to: self.slot(),
        })
    }

    /// One or two replicas are killed; another is started for each.
    fn kills(&mut self, calls: &[CallPlan]) -> Vec<At<Process>> {
        let mut events = Vec::new();
        // Most often one that holds something.
        let first = if self.has(75) {
            calls[0].to
        } else {
            self.slot()
        };
        let mut killed = vec![first];
        if self.has(35) {
            killed.push((first + 1 + self.0.usize(0..SLOTS - 1)) % SLOTS);
        }
        for slot in killed {
            let at = self.moment();
            let back = Ms(at.0 + self.between(20, 900));
            events.push(At {
                at,
                what: Process::Kill(slot),
            });
            events.push(At {
                at: back,
                what: Process::Start(slot),
            });
        }
        events.sort_by_key(|event| event.at);
        events
    }

    fn roll(&mut self) -> Vec<At<Process>> {
        vec![At {
            at: self.moment(),
            what: Process::Roll,
        }]
    }

    fn outage(&mut self) -> At<Store> {
        let lasts = self.ms(50, 1200);
        let what = if self.has(50) {
            Store::Freeze(lasts)
        } else {
            Store::Lose(lasts)
        };
        At {
            at: self.moment(),
            what,
        }
    }

    fn cut(&mut self) -> At<Cut> {
        let slot = self.slot();
        let what = match self.between(0, 9) {
            0..=3 => Cut::Now(slot),
            4..=7 => Cut::After(slot, self.0.usize(0..2500)),
            _ => Cut::Away(slot, self.ms(20, 600)),
        };
        At {
            at: self.moment(),
            what,
        }
    }
}
