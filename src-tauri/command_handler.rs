//! The list of all commands that the window may call. Other modules, such as `commands.rs`, contain
//! the commands themselves.

use crate::{
    app_commands, base_model_commands, chat_commands, commands, data_commands,
    plan_setting_commands, queue_commands, results_commands, run_commands, save_chart,
};
use tauri::Wry;
use tauri::ipc::Invoke;

/// Answers the commands of the page.
// tidy: table
pub fn handler() -> impl Fn(Invoke<Wry>) -> bool + Send + Sync + 'static {
    tauri::generate_handler![
        commands::welcome,
        commands::machine,
        commands::runs,
        commands::run_list,
        commands::choose_folder,
        commands::choose_weights,
        commands::begin_with,
        base_model_commands::base_models,
        base_model_commands::choose_gguf,
        base_model_commands::look_up_model,
        base_model_commands::download_model,
        base_model_commands::looked_up_model,
        base_model_commands::stop_model,
        commands::open_sample,
        commands::inspection,
        commands::estimate,
        commands::train,
        commands::resume,
        commands::control,
        commands::stop_device_check,
        commands::stop_reading,
        commands::memory_limits,
        commands::drill,
        commands::pull,
        queue_commands::enqueue,
        queue_commands::enqueue_resume,
        queue_commands::queue,
        queue_commands::change_queue,
        queue_commands::start_queue,
        data_commands::data,
        data_commands::data_samples,
        data_commands::first_samples,
        data_commands::conversations,
        data_commands::data_thumbnail,
        data_commands::reveal_file,
        data_commands::choose_data,
        data_commands::data_duplicates,
        data_commands::draw_samples,
        data_commands::drawn_sample,
        results_commands::results,
        results_commands::evaluate_run,
        results_commands::leave_results,
        results_commands::result_samples,
        results_commands::result_thumbnail,
        results_commands::reveal_sample,
        save_chart::save_chart,
        results_commands::locate_data,
        results_commands::export_choices,
        results_commands::export_run,
        results_commands::try_choose,
        results_commands::try_picture,
        results_commands::try_text,
        results_commands::try_files,
        results_commands::try_answers,
        results_commands::try_thumbnail,
        results_commands::try_saliency,
        results_commands::try_save,
        results_commands::open_input,
        results_commands::compare_results,
        results_commands::evaluate_input,
        chat_commands::chat_begin,
        chat_commands::chat_answer,
        chat_commands::chat_stop,
        chat_commands::ask_questions,
        chat_commands::questions,
        chat_commands::stop_questions,
        plan_setting_commands::setting_values,
        plan_setting_commands::changed_settings,
        plan_setting_commands::check_settings,
        plan_setting_commands::set_data_setting,
        commands::report_error,
        commands::epoch_seconds,
        run_commands::context_menu,
        run_commands::run_location,
        run_commands::edit_run,
        run_commands::import_run,
        run_commands::repeat_run,
        run_commands::missing_data,
        run_commands::recovery_options,
        run_commands::reveal,
        run_commands::trash_run,
        app_commands::enable_actions,
        app_commands::recent_folders,
        app_commands::open_recent,
        app_commands::forget_recent,
        app_commands::set_language,
        app_commands::quit,
        app_commands::close_window,
        app_commands::zoom,
    ]
}

#[cfg(test)]
mod tests {
    /// The commands in a part of a source file, one per line.
    fn names(text: &str, start: &str) -> Vec<String> {
        let (_, rest) = text.split_once(start).expect("the list is there");
        let (list, _) = rest.split_once(']').expect("the list ends");
        let lines = list.lines().map(|line| line.trim().trim_end_matches(','));
        let lines = lines.filter(|line| !line.is_empty());
        let name = |line: &str| {
            line.rsplit("::")
                .next()
                .unwrap_or(line)
                .trim_matches('"')
                .to_owned()
        };
        let mut names: Vec<String> = lines.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn the_window_may_call_every_command() {
        let handled = names(include_str!("command_handler.rs"), "generate_handler![");
        assert!(handled.len() > 50, "{handled:?}");
        let declared = names(include_str!("build.rs"), "COMMANDS: &[&str] = &[");
        assert_eq!(declared, handled, "build.rs");
        let allowed = names(include_str!("capabilities/main.json"), "\"permissions\": [");
        let allowed = allowed
            .iter()
            .filter_map(|name| name.strip_prefix("allow-"));
        let allowed: Vec<String> = allowed.map(|name| name.replace('-', "_")).collect();
        assert_eq!(allowed, handled, "capabilities/main.json");
    }
}
