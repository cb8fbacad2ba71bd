package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

func (a *app) setup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create publication and slot",
		Long: `Setup creates the publication for the outbox tables and then the slot, in this order and only if
nothing written in between can be lost. What exists already is left as it is, so it may be
repeated. The tables must exist (outbox-cdc migrate). It needs the owner of the tables with the
REPLICATION attribute; running the relay needs the attribute only.

With --drop it removes the slot and then the publication. What the slot still held is then lost
to the relay; the rows themselves are not touched.`,
		Example: `  outbox-cdc setup --dsn postgres://owner@db/app --publication outbox_cdc --slot outbox_cdc
  outbox-cdc setup -c outbox-cdc.yaml --table public.outbox --table billing.outbox
  outbox-cdc setup -c outbox-cdc.yaml --drop`,
		Args: noArgs,
	}
	s := configFlags(cmd, "dsn", "publication", "slot", "table")
	drop := cmd.Flags().Bool("drop", false, "remove slot and publication")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load(s)
		if err != nil {
			return failed(err)
		}
		setupCfg, err := cfg.Setup()
		if err != nil {
			return failed(err)
		}
		do := catalog.Setup
		if *drop {
			do = catalog.Drop
		}
		steps, err := do(cmd.Context(), setupCfg)
		a.printSteps(steps)
		if err != nil {
			f := failed(err)
			f.where = []string{"source: " + address(setupCfg.Conn)}
			f.object = "slot " + setupCfg.Slot
			return f
		}
		if !*drop {
			a.printNext(s, setupCfg)
		}
		return nil
	}
	return cmd
}

func (a *app) printSteps(steps []catalog.Step) {
	for _, step := range steps {
		line := fmt.Sprintf("%-8s %s", step.Action, step.Object)
		if step.LSN != 0 {
			line += " at " + step.LSN.String()
		}
		fmt.Fprintln(a.stdout, line)
		if step.Warning != "" {
			fmt.Fprintf(a.stderr, "warning: %s: %s\n", step.Object, step.Warning)
		}
	}
}

// printNext prints the command that comes after a setup.
func (a *app) printNext(s *settings, cfg catalog.SetupConfig) {
	args := []string{"--dsn …", "--publication " + cfg.Publication, "--slot " + cfg.Slot, "--brokers …"}
	if s.file != "" {
		args = []string{"-c " + s.file}
	}
	fmt.Fprintf(a.stdout, "\nnext: outbox-cdc run %s\n", strings.Join(args, " "))
}
