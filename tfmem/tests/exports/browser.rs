//! The picture in a real browser, where there is one.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Clicks on a frame once the picture is there.
const CLICK: &str = "<script>window.addEventListener('load', () => setTimeout(() => {
  for (const g of document.querySelectorAll('#frames g'))
    if (g.querySelector('title').textContent.startsWith('open_job (train.py:35)'))
      g.dispatchEvent(new MouseEvent('click', { bubbles: true }));
}, 200));</script></svg>";

fn dump(folder: &Path, svg: &str) -> Option<String> {
    let page = folder.join("flame.svg");
    fs::write(&page, svg).unwrap();
    let out = folder.join("dom");
    let mut browser = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .stdout(fs::File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let began = Instant::now();
    while browser.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(60) {
            browser.kill().unwrap();
            browser.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::read_to_string(out).ok().filter(|dom| !dom.is_empty())
}

#[test]
fn a_browser_draws_it_and_a_click_zooms() {
    let folder = tempfile::tempdir().unwrap();
    let svg = super::flame::svg();
    let Some(plain) = dump(folder.path(), &svg) else {
        eprintln!("left out: no chromium that works here (package chromium)");
        return;
    };
    let end = svg.rfind("</svg>").unwrap();
    let clicked = dump(folder.path(), &format!("{}{CLICK}", &svg[..end])).unwrap();
    // What a click shows: the rest is hidden, and the way back appears.
    let hidden = |dom: &str| dom.matches("class=\"hide\"").count() + dom.matches("class=\"parent\"").count();
    assert!(plain.contains("op MatMul_1") && clicked.contains("op MatMul_1"));
    assert!(hidden(&clicked) > hidden(&plain), "{} {}", hidden(&plain), hidden(&clicked));
}
