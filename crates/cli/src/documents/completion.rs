//! Completion for bash, and for zsh by its emulation of bash's: commands, options, words of values, fields, names.

use super::values::{options, words};
use crate::command::{Command, Operands};
use crate::options::Kind;
use crate::report::fields;
use std::fmt::Write;

/// The script's word for the kind of a command's operands.
fn operands(command: &Command) -> &'static str {
    match command.operands {
        Operands::Nothing => "nothing",
        Operands::Groups => "vgs",
        Operands::Devices => "files",
        Operands::GroupAndDevices => "vgs_and_files",
        Operands::GroupAndVolumes | Operands::Volumes | Operands::VolumeFirst | Operands::OriginOrGroup => "lvs",
    }
}

/// The function that completes for `rowen`, `lvm` and each command by its own name.
pub fn bash(commands: &[Command]) -> String {
    let names: Vec<&str> = commands.iter().map(|command| command.name).collect();
    let fields: Vec<&str> = fields::all().map(|field| field.name).collect();
    let mut text = format!(
        "# Completion of rowen's commands; made by `rowen completion bash`.\n\
         _rowen_commands='{}'\n\
         _rowen_fields='{}'\n\n",
        names.join(" "),
        fields.join(" ")
    );
    text.push_str("_rowen_options() {\n    case $1 in\n");
    for command in commands {
        let mut longs: Vec<String> = options(command).map(|spec| format!("--{}", spec.long)).collect();
        longs.sort();
        let _infallible = writeln!(text, "    {}) echo '{}' ;;", command.name, longs.join(" "));
    }
    text.push_str("    esac\n}\n\n_rowen_operands() {\n    case $1 in\n");
    for command in commands.iter().filter(|command| operands(command) != "nothing") {
        let _infallible = writeln!(text, "    {}) echo {} ;;", command.name, operands(command));
    }
    text.push_str("    esac\n}\n\n_rowen_values() {\n    case $1:$2 in\n");
    for command in commands {
        for spec in options(command) {
            let values = words(spec.kind);
            let short = spec.short.map_or_else(String::new, |letter| format!("|{}:-{letter}", command.name));
            let line = match spec.kind {
                Kind::Flag => continue,
                _ if !values.is_empty() => values.join(" "),
                _ if matches!(spec.long, "options" | "sort") => "@fields".to_owned(),
                // The entry is needed, or the script takes the next word for an operand.
                _ => "@any".to_owned(),
            };
            let _infallible = writeln!(text, "    {0}:--{1}{short}) echo '{line}' ;;", command.name, spec.long);
        }
    }
    text.push_str("    esac\n}\n");
    text.push_str(FUNCTION);
    let own: Vec<&str> = commands.iter().filter(|command| command.has_own_name()).map(|command| command.name).collect();
    let _infallible = writeln!(text, "complete -F _rowen rowen lvm {}", own.join(" "));
    text
}

const FUNCTION: &str = r#"
_rowen() {
    local word=${COMP_WORDS[COMP_CWORD]} before= command=${COMP_WORDS[0]##*/} values= head= tool=rowen
    COMPREPLY=()
    [ "$COMP_CWORD" -gt 0 ] && before=${COMP_WORDS[COMP_CWORD - 1]}
    case $command in
    rowen | lvm)
        tool=${COMP_WORDS[0]}
        if [ "$COMP_CWORD" = 1 ]; then
            mapfile -t COMPREPLY < <(compgen -W "$_rowen_commands" -- "$word")
            return
        fi
        command=${COMP_WORDS[1]}
        ;;
    esac
    # bash takes = for a word of its own
    if [ "$before" = = ] && [ "$COMP_CWORD" -gt 1 ]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
    [ "$word" != = ] || word=
    values=$(_rowen_values "$command" "$before")
    case $values in
    '') ;;
    @any) return ;;
    @fields)
        case $word in
        *,*) head=${word%,*}, word=${word##*,} ;;
        [+-]*) head=${word:0:1} word=${word:1} ;;
        esac
        mapfile -t COMPREPLY < <(compgen -P "$head" -W "$_rowen_fields" -- "$word")
        return
        ;;
    *)
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
        return
        ;;
    esac
    case $word in
    -*)
        mapfile -t COMPREPLY < <(compgen -W "$(_rowen_options "$command")" -- "$word")
        return
        ;;
    esac
    case $(_rowen_operands "$command") in
    lvs) values=$("$tool" lvs --noheadings -o lv_full_name 2>/dev/null; "$tool" vgs --noheadings -o vg_name 2>/dev/null) ;;
    vgs | vgs_and_files) values=$("$tool" vgs --noheadings -o vg_name 2>/dev/null) ;;
    esac
    [ -z "$values" ] || mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
    case $(_rowen_operands "$command") in
    *files) while IFS= read -r values; do COMPREPLY+=("$values"); done < <(compgen -f -- "$word") ;;
    esac
}

"#;

/// The same for zsh.
pub fn zsh(commands: &[Command]) -> String {
    let own: Vec<&str> = commands.iter().filter(|command| command.has_own_name()).map(|command| command.name).collect();
    let bash = bash(commands)
        .replace("mapfile -t COMPREPLY < <(", "COMPREPLY=($(")
        .replace(" -- \"$word\")\n", " -- \"$word\"))\n");
    format!("#compdef rowen lvm {}\nautoload -U +X bashcompinit && bashcompinit\n{bash}", own.join(" "))
}
