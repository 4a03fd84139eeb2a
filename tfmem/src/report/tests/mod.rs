//! Reports of small programs as text and as JSON.

mod golden;
mod schema;

use crate::retention::testing::report;

use super::model::{Cost, Report};

/// Programs whose reports are looked at, by name.
fn samples() -> Vec<(&'static str, Report)> {
    let mut out: Vec<(&'static str, Report)> = SCRIPTS.iter().map(|(name, lines)| (*name, report(lines))).collect();
    for (_, report) in &mut out {
        report.cost = Some(Cost { cpu_ms: 400, peak_rss_bytes: 38 << 20 });
        report.tfmem.version = "0.0.0".to_owned();
    }
    out
}

/// What every sample begins with.
macro_rules! head {
    () => {
        "0 start\n1 10 process /srv/jobs/train.py\n2 10 tensorflow 2.21.0\n3 10 pool f00 mklcpu\n\
         4 10 extend f00 10000000 256M\n5 10 extend f00 20000000 256M\n"
    };
}

macro_rules! session {
    ($at:literal, $n:literal) => {
        concat!(
            $at,
            "00 10 new a",
            $n,
            "\n",
            $at,
            "10 10 run a",
            $n,
            "\n",
            $at,
            "20 10 chunk f00 1",
            $n,
            "000000 16M w/Initializer/zeros\n",
            $at,
            "21 10 heap 5",
            $n,
            "000000 300K MatMul:temp\n",
            $at,
            "30 10 /run\n"
        )
    };
}

const SCRIPTS: [(&str, &str); 7] = [
    (
        "sessions_open",
        concat!(
            head!(),
            session!("10", "1"),
            session!("20", "2"),
            session!("30", "3"),
            session!("40", "4"),
            "40990 10 look 300M 100M exit in=10000000+96M,20000000+40M,51000000+300K,52000000+300K \
             map=10000000+256M,20000000+256M,51000000+1M\n41000 10 exit 0\n43001 end\n"
        ),
    ),
    (
        "sessions_closed_then_reused",
        concat!(
            head!(),
            session!("10", "1"),
            "2000 10 close a1\n2010 10 look 210M 90M in=10000000+96M map=10000000+256M,20000000+256M\n\
             2020 10 unchunk f00 11000000\n2021 10 unheap 51000000\n2030 10 /close\n2031 10 delete a1\n2032 10 /delete\n\
             4031 10 look 208M 90M in=10000000+96M map=10000000+256M,20000000+256M\n",
            session!("50", "2"),
            "6000 10 close a2\n6020 10 unchunk f00 12000000\n6021 10 unheap 52000000\n6030 10 /close\n\
             6031 10 delete a2\n6032 10 /delete\n9000 10 exit 0\n11001 end\n"
        ),
    ),
    (
        "closed_not_deleted",
        concat!(
            head!(),
            session!("10", "1"),
            session!("20", "2"),
            "3000 10 close a1\n3001 10 /close\n3010 10 close a2\n3011 10 /close\n9000 10/11 heap 60000000 9M\n12000 10 killed 9\n12001 end\n"
        ),
    ),
    (
        "still_running",
        concat!(head!(), session!("10", "1"), "41000 10 look 250M 80M in=10000000+96M map=10000000+256M\n41500 end\n"),
    ),
    (
        "children",
        "0 start\n1 9 process launch.sh\n2 9 fork 10\n3 10 process pool.py ppid=9\n4 10 tensorflow 2.15.1\n100 10 fork 11\n\
         101 11 process worker.py ppid=10\n900 9 look 2M 1M\n6000 10 exit 1\n8000 11 look 60M 4M\n9000 end\n",
    ),
    ("no_tensorflow", "0 start\n1 10 process plain.py\n900 10 look 8M 5M\n1000 10 exit 0\n3001 end\n"),
    (
        "losses",
        concat!(
            head!(),
            "100 10 lost events_dropped 1234\n101 10 lost stacks_truncated 5\n102 10 unheap 99\n9000 10 exit 0\n11001 end\n"
        ),
    ),
];
