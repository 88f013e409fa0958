// One function per command of the tool; `longhaul COMMAND --help` shows their help.
#ifndef DP_COMMANDS_H
#define DP_COMMANDS_H

#include "deploy/tool/cli.h"

int dp_cmd_admit(int argc, char **argv);
int dp_cmd_certs(int argc, char **argv);
int dp_cmd_checkpoint(int argc, char **argv);
int dp_cmd_completion(int argc, char **argv);
int dp_cmd_config(int argc, char **argv);
int dp_cmd_data(int argc, char **argv);
int dp_cmd_describe(int argc, char **argv);
int dp_cmd_doctor(int argc, char **argv);
int dp_cmd_drain(int argc, char **argv);
int dp_cmd_pause(int argc, char **argv);
int dp_cmd_resume(int argc, char **argv);
int dp_cmd_adopt(int argc, char **argv);
int dp_cmd_move(int argc, char **argv);
int dp_cmd_balancer(int argc, char **argv);
int dp_cmd_eval(int argc, char **argv);
int dp_cmd_expel(int argc, char **argv);
int dp_cmd_export(int argc, char **argv);
int dp_cmd_events(int argc, char **argv);
int dp_cmd_generate(int argc, char **argv);
int dp_cmd_get(int argc, char **argv);
int dp_cmd_gpu(int argc, char **argv);
int dp_cmd_log(int argc, char **argv);
int dp_cmd_man(int argc, char **argv);
int dp_cmd_model(int argc, char **argv);
int dp_cmd_privacy(int argc, char **argv);
int dp_cmd_refold(int argc, char **argv);
int dp_cmd_render(int argc, char **argv);
int dp_cmd_retire(int argc, char **argv);
int dp_cmd_rewind(int argc, char **argv);
int dp_cmd_run(int argc, char **argv);
int dp_cmd_state(int argc, char **argv);
int dp_cmd_store(int argc, char **argv);
int dp_cmd_top(int argc, char **argv);
int dp_cmd_up(int argc, char **argv);

#endif
