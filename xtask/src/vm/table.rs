//! What a person sees of one kernel.

use std::time::Duration;

use super::said::Said;

pub fn print(kernel: &str, said: &Said, took: Duration, wrong: &[String]) {
    println!("\n{kernel}: Linux {}, {:.0} s", said.release, took.as_secs_f64());
    if !said.programs.is_empty() {
        let width = said.programs.iter().map(|program| program.name.len()).max().unwrap_or(0);
        println!("  {:<width$}  loaded  attached    fired  instructions verified", "program");
        for program in &said.programs {
            let yes = |yes| if yes { "yes" } else { "NO" };
            let verified = program.instructions.map_or_else(|| "?".to_owned(), |count| count.to_string());
            println!(
                "  {:<width$}  {:<6}  {:<8}  {:>7}  {verified:>21}",
                program.name,
                yes(program.loaded),
                if program.optional && !program.attached { "-" } else { yes(program.attached) },
                program.fired,
            );
        }
    }
    if let Some(outcomes) = &said.capabilities {
        let not_ok: Vec<String> = outcomes
            .iter()
            .filter(|(_, outcome)| *outcome != "ok")
            .map(|(name, how)| format!("{name} {how}"))
            .collect();
        let rest = if not_ok.is_empty() { String::new() } else { format!("; {}", not_ok.join(", ")) };
        println!("  capabilities: {} ok{rest}", outcomes.len() - not_ok.len());
    }
    if !said.ledgers.is_empty() {
        println!("  ledgers: {}", said.ledgers.keys().cloned().collect::<Vec<_>>().join("; "));
    }
    for why in wrong {
        println!("  WRONG: {}", why.replace(" | ", "\n           "));
    }
    println!("  {}", if wrong.is_empty() { "as it should be" } else { "FAILED" });
}
