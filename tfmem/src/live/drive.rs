//! The loop of a trace.

use std::{os::fd::AsFd as _, path::Path, time::Duration};

use anyhow::Result;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep},
};

use super::{
    Live, libraries,
    marks::{FOLDER, Marks, Request},
};
use crate::{
    event::{Addr, Body, Event, ExitStatus},
    observe::snapshot::{self, Seen},
    stream::decode::{Hold, Record, decode},
    target::{clock, info, warden::Message},
};

/// The buffer is drained at least this often while events come, and this often when none came for a while. Rare events
/// wake the loop by themselves, and so do many at once.
const BUSY: Duration = Duration::from_millis(5);
const IDLE: Duration = Duration::from_millis(250);

/// How much of a process is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Totals,
    Full,
    /// Full, and who holds what: at the beginning of a trace of a running process, and at its end.
    WithHolders,
}

/// Why a trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process that `run` started ended.
    Main(Option<ExitStatus>),
    /// Every traced process ended.
    All,
    /// The user or a time limit said so.
    Asked,
}

/// What ends a trace before its processes do.
pub trait Stop {
    /// Completes when the trace shall end.
    fn wait(&mut self) -> impl Future<Output = ()>;
}

impl Live {
    /// Traces until the main process ended (or all of them, or `stop` completes), then waits for what is still due.
    ///
    /// # Errors
    /// When the kernel's buffer cannot be waited for.
    pub async fn drive(
        &mut self,
        main: Option<u32>,
        mut warden: UnboundedReceiver<Message>,
        mut stop: impl Stop,
    ) -> Result<End> {
        let ring = self.ring.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is owned by the wrapper and lives as long as its registration.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?;
        let mut quiet_since = Instant::now();
        let mut main_status = None;
        let mut marks = Marks::listen(Path::new(FOLDER))
            .inspect_err(|error| log::info!("`tfmem mark` will not reach this trace: {error}"))
            .ok();
        loop {
            tokio::select! {
                guard = ring.readable() => guard?.clear_ready(),
                () = sleep(self.pause(quiet_since)) => {}
                Some(message) = warden.recv() => {
                    if let Some(status) = self.told(message, main) {
                        main_status = Some(status);
                    }
                }
                Some(request) = asked(&mut marks) => self.mark(request),
                () = stop.wait() => return Ok(self.end(End::Asked)),
            }
            if self.drain() {
                quiet_since = Instant::now();
            }
            self.look_around();
            if self.closes.as_ref().is_some_and(|closes| closes.over_at(clock::boot_ns())) {
                return Ok(self.end(End::Asked));
            }
            if let Some(end) = self.over(main, main_status) {
                return Ok(self.end(end));
            }
        }
    }

    /// How long nothing needs to be done, if nothing happens.
    fn pause(&self, quiet_since: Instant) -> Duration {
        if quiet_since.elapsed() < Duration::from_secs(1) {
            return BUSY;
        }
        let due = self.schedule.next().into_iter().chain(self.deadline).min();
        let until = due.map(|due| Duration::from_nanos(due.saturating_sub(clock::boot_ns())));
        until.map_or(IDLE, |until| until.clamp(BUSY, IDLE))
    }

    /// The main process's status, when the warden told of its end.
    fn told(&mut self, message: Message, main: Option<u32>) -> Option<Option<ExitStatus>> {
        match message {
            Message::Exiting { pid, at, seen } => {
                if let Some(tracked) = self.tracked.get_mut(&pid) {
                    tracked.exiting = true;
                }
                if let Some(mut seen) = seen {
                    seen.snapshot.at_exit = true;
                    self.saw(at, pid, *seen);
                }
                None
            }
            Message::Ended { pid, status, at } => {
                // Everything the process did is in the buffer by now.
                self.drain();
                self.ended(pid, Some(status), at);
                (main == Some(pid)).then_some(Some(status))
            }
        }
    }

    /// Is there nothing left to wait for? After the main process's end its children get the grace time.
    fn over(&mut self, main: Option<u32>, main_status: Option<Option<ExitStatus>>) -> Option<End> {
        if main.is_some() {
            let status = main_status?;
            let now = clock::boot_ns();
            if self.tracked.is_empty() || self.deadline.is_some_and(|deadline| now > deadline) {
                return Some(End::Main(status));
            }
            self.deadline.get_or_insert(now + self.options.grace.as_nanos() as u64);
            return None;
        }
        self.tracked.is_empty().then_some(End::All)
    }

    fn end(&mut self, end: End) -> End {
        self.drain();
        let left: Vec<u32> = self.tracked.keys().copied().collect();
        for pid in left {
            self.look(pid, Look::WithHolders);
            self.programs.untrack(pid);
        }
        self.say_losses();
        self.libraries.symbols().say_unseen();
        self.emit(0, Body::TraceEnd);
        let mut rest = Vec::new();
        self.order.flush(&mut rest);
        self.sink.send(rest);
        end
    }

    /// Takes everything out of the buffer, acts on what cannot wait, and passes on what is in order. `true`: there
    /// was something.
    pub(super) fn drain(&mut self) -> bool {
        let mut any = false;
        // Acting on a record may take as long as putting probes in; the kernel fills the buffer meanwhile.
        loop {
            let mut records = Vec::new();
            while let Some(item) = self.ring.next() {
                match decode(&item) {
                    Ok(record) => records.push(record),
                    Err(error) => {
                        self.undecodable += 1;
                        log::debug!("{error}");
                    }
                }
                if records.len() == BATCH {
                    break;
                }
            }
            if records.is_empty() {
                break;
            }
            any = true;
            let mut latest = 0;
            for record in records {
                match record {
                    Record::Event(mut event) => {
                        latest = latest.max(event.at);
                        if let Body::Stack(stack) = &event.body {
                            self.stacks.check(event.pid, stack);
                            if let Some((named, places)) = self.stacks.name(event.at, event.pid, stack) {
                                event.body = Body::Stack(named.into());
                                places.into_iter().for_each(|place| self.order.push(place));
                            }
                        }
                        self.react(&event);
                        self.order.push(event);
                    }
                    Record::Hold(hold) => self.hold(hold),
                    Record::Copy(copy) => self.stacks.copied(&copy),
                    Record::Nothing => {}
                }
            }
            // More may be waiting that happened meanwhile: what counts is how far the buffer was read, not the clock.
            self.pass_on(latest);
        }
        any
    }

    /// Sets a mark, if the process is ours.
    fn mark(&mut self, request: Request) {
        let Request { pid, label, answer } = request;
        let ours = self.tracked.contains_key(&pid);
        if ours {
            self.emit(pid, Body::Mark { label });
            self.look_at_boundary(pid, clock::boot_ns());
        }
        // One who did not wait for the answer does not need it.
        let _ = answer.send(ours);
    }

    /// A boundary that is over as soon as it begins: a look now, and one when survivors are due.
    fn look_at_boundary(&mut self, pid: u32, at: u64) {
        self.schedule.at(pid, at);
        self.look_after(pid, at);
    }

    /// Looks when what outlives a close is known.
    fn look_after(&mut self, pid: u32, closed: u64) {
        self.schedule.after(pid, closed, self.options.grace.as_nanos() as u64);
    }

    /// Passes on what nothing that is still to come can precede: everything up to `now` has been read.
    fn pass_on(&mut self, now: u64) {
        let mut ready = Vec::new();
        self.order.release(now, &mut ready);
        if !ready.is_empty() {
            self.sink.send(ready);
        }
    }

    fn hold(&mut self, hold: Hold) {
        let lines = libraries::code_of(hold.pid);
        let events = self.libraries.held(&mut self.programs, hold, &lines, self.stacks.are_off());
        let files = self.stacks.map(&mut self.programs, hold.pid, &lines, true);
        for event in events.into_iter().chain(files) {
            self.order.push(event);
        }
        if let Some(warden) = &self.warden {
            warden.release(hold.pid, hold.tid);
        }
    }

    /// Puts probes into what a process maps where that was not done yet, and says which libraries it has.
    pub(super) fn judge(&mut self, pid: u32, start: Option<Addr>) {
        let lines = libraries::code_of(pid);
        let events = self.libraries.judge(&mut self.programs, pid, start, &lines);
        let files = self.stacks.map(&mut self.programs, pid, &lines, false);
        for event in events.into_iter().chain(files) {
            self.order.push(event);
        }
    }

    /// What an event asks of us at once.
    fn react(&mut self, event: &Event) {
        if event.pid != self.last_seen && !self.tracked.contains_key(&event.pid) && info::alive(event.pid) {
            // The record of its fork was dropped; the kernel traces it all the same.
            self.follow(event.pid, false, false);
        }
        self.last_seen = event.pid;
        if let Some(closes) = &mut self.closes {
            closes.feed(event);
        }
        match &event.body {
            Body::Fork { child, .. } => {
                // The warden follows what a followed process makes.
                self.follow(*child, self.warden.is_some(), false);
                self.stacks.forked(event.pid, *child);
                if self.libraries.announced(event.pid) {
                    // The child has the parent's libraries, probes and all, and maps nothing anew.
                    // Its next program may be in place already: what is found counts for the moment of the fork.
                    let lines = libraries::code_of(*child);
                    for found in self.libraries.judge(&mut self.programs, *child, None, &lines) {
                        self.order.push(Event { at: event.at, ..found });
                    }
                }
            }
            Body::Exec => {
                self.libraries.forget(event.pid);
                self.callers.forget(event.pid);
                self.stacks.forget(&mut self.programs, event.pid);
                self.describe(event.pid, false);
                self.schedule.at(event.pid, event.at);
                if self.warden.is_none() {
                    self.judge(event.pid, None);
                }
            }
            // Without holding (`trace`), a library that is mapped later gets its probes as soon as we hear of it.
            Body::Map { start, prot, file: true, .. } if self.warden.is_none() && prot & EXEC != 0 => {
                self.judge(event.pid, Some(*start));
            }
            Body::Gpu(_) => {
                if let Some(code) = self.callers.meet(event) {
                    self.order.push(code);
                }
            }
            Body::Enter { call, .. } if call.wakes() => self.schedule.at(event.pid, event.at),
            Body::Leave { call, .. } if call.wakes() => self.look_after(event.pid, event.at),
            Body::UserEnter { number } => {
                self.libraries.symbols().called(*number);
                self.look_at_boundary(event.pid, event.at);
            }
            Body::UserLeave { .. } => self.look_after(event.pid, event.at),
            Body::ThreadExit if event.pid == event.tid => {
                if let Some(tracked) = self.tracked.get_mut(&event.pid) {
                    tracked.leader_gone = true;
                }
            }
            _ => {}
        }
    }

    /// Where no event tells of mappings, looks at all processes now and then, for libraries too.
    fn poll(&mut self, now: u64) {
        if self.poll.is_none_or(|due| due > now) {
            return;
        }
        self.poll = Some(now + POLL_EVERY_NS);
        let pids: Vec<u32> = self.tracked.keys().copied().collect();
        for pid in pids {
            self.judge(pid, None);
            if !self.options.snapshot_only {
                self.schedule.at(pid, now);
            }
        }
    }

    /// Looks at processes where it is due, and notices ends that nobody tells of.
    pub(super) fn look_around(&mut self) {
        let now = clock::boot_ns();
        if now.saturating_sub(self.misses_read) >= MISSES_EVERY_NS {
            self.say_missed();
        }
        self.poll(now);
        self.stacks.take_made(&mut self.programs);
        for pid in self.schedule.take_searches(now) {
            self.search(pid);
        }
        for pid in self.schedule.take_due(now) {
            self.look(pid, Look::Full);
        }
        let totals = self.schedule.take_totals(now);
        if totals {
            let living = self.tracked.iter().filter(|(_, tracked)| !tracked.exiting);
            let pids: Vec<u32> = living.map(|(pid, _)| *pid).collect();
            for pid in pids {
                self.look(pid, Look::Totals);
            }
            self.say_losses();
        }
        // With the totals everybody is asked: the record of a main thread's end may have been dropped.
        let candidates = self.tracked.iter().filter(|(_, tracked)| !tracked.seized && (totals || tracked.leader_gone));
        let mut gone: Vec<u32> = candidates
            .filter(|(pid, tracked)| !info::alive(**pid) || tracked.is_another(**pid))
            .map(|(pid, _)| *pid)
            .collect();
        if totals {
            // A followed process that is nowhere any more was followed by somebody else after all. Not at once: the
            // warden's word of its end, with the status, may be on its way.
            for (&pid, tracked) in self.tracked.iter_mut().filter(|(_, tracked)| tracked.seized) {
                let nowhere = info::state(pid).is_none();
                if std::mem::replace(&mut tracked.nowhere, nowhere) && nowhere {
                    gone.push(pid);
                }
            }
        }
        for pid in gone {
            self.ended(pid, None, clock::boot_ns());
        }
        self.pass_on(clock::boot_ns());
    }

    /// One observation of a process.
    pub(super) fn look(&mut self, pid: u32, how: Look) {
        let full = how != Look::Totals;
        if full {
            self.say_missed();
        }
        let begun = std::time::Instant::now();
        let at = clock::boot_ns();
        let seen = match how {
            Look::Totals => snapshot::totals(pid).map(Seen::from),
            Look::Full => snapshot::full(pid),
            Look::WithHolders => snapshot::with_holders(pid),
        };
        if full {
            self.schedule.looked(pid, clock::boot_ns(), begun.elapsed());
            // What is lost from here on is not corrected by this look.
            self.misses_read = at + 1;
        }
        match seen {
            // No resident page at all: a zombie, or a process whose memory is being taken down.
            Ok(seen) if seen.snapshot.rss() == 0 => {}
            Ok(seen) => self.saw(at, pid, seen),
            // It ended meanwhile; its end will be told.
            Err(error) => log::debug!("process {pid}: {error}"),
        }
    }

    /// Who holds what, of a process that runs on: survivors that are judged next get their holders.
    fn search(&mut self, pid: u32) {
        let begun = std::time::Instant::now();
        let at = clock::boot_ns();
        match snapshot::holders(pid) {
            Ok(Some(holders)) => self.order.push(Event::of(at, pid, pid, Body::Holders(holders))),
            Ok(None) => {}
            Err(error) => log::debug!("process {pid}: {error}"),
        }
        self.schedule.searched(pid, clock::boot_ns(), begun.elapsed());
    }

    pub(super) fn saw(&mut self, at: u64, pid: u32, seen: Seen) {
        for body in seen.bodies() {
            self.order.push(Event::of(at, pid, pid, body));
        }
    }

    /// Says what was lost of whom since it was asked last, and has those processes looked at: `/proc` sets right what
    /// it can.
    pub(super) fn say_missed(&mut self) {
        let now = clock::boot_ns();
        let since = std::mem::replace(&mut self.misses_read, now).max(self.order.passed());
        for event in self.misses.events(since, &self.programs.lost()) {
            self.schedule.at(event.pid, now);
            self.order.push(event);
        }
    }

    fn say_losses(&mut self) {
        self.say_missed();
        let own = [
            ("events_late", self.order.late()),
            ("records_undecodable", self.undecodable),
            ("unwind_tables_refused", self.stacks.refused()),
            ("stacks_checked", self.stacks.oracle().checked),
            ("stacks_checked_in_part", self.stacks.oracle().in_part),
            ("stacks_unlike_framehop", self.stacks.oracle().unlike),
        ];
        let own: Vec<_> = own.into_iter().chain(self.stacks.nameless()).collect();
        let events = self.losses.events(clock::boot_ns(), &self.programs.counters(), &own);
        for event in events {
            self.order.push(event);
        }
    }
}

/// The next mark, or never.
async fn asked(marks: &mut Option<Marks>) -> Option<Request> {
    match marks {
        Some(marks) => marks.next().await,
        None => std::future::pending().await,
    }
}

/// Mappings are read this often where no event tells of them.
const POLL_EVERY_NS: u64 = 1_000_000_000;
/// What was lost of whom is asked for this often: well inside the window in which events are put in order.
const MISSES_EVERY_NS: u64 = 50_000_000;
/// Records decoded before they are acted on.
const BATCH: usize = 4096;
const EXEC: u32 = libc::PROT_EXEC as u32;
