"""The `speedinfer` command: puts the nouns together. Nothing imports it.

Exit codes: 0 done, 1 not done (a sentence on standard error says why), 2 wrong usage.
"""

from services.cli import accounts, certs, doctor, evidence, keys, prices, service, sidecar, up, usage, workers
from services.cli.invocation import command, new_root

app = new_root("SpeedInfer: an inference gateway that charges prepaid accounts from reported usage.")

command(app, "up")(up.up)
command(app, "edge")(service.edge)
command(app, "router")(service.router)
command(app, "billing")(service.billing)
app.add_typer(workers.app, name="workers")
app.add_typer(accounts.app, name="accounts")
app.add_typer(keys.app, name="keys")
app.add_typer(prices.app, name="prices")
command(app, "usage")(usage.usage)
app.add_typer(evidence.app, name="ledger")
app.add_typer(certs.app, name="certs")
command(app, "sidecar")(sidecar.sidecar)
command(app, "doctor")(doctor.doctor)


def main() -> None:
    """Run the command; ends the process."""
    app(prog_name="speedinfer")


if __name__ == "__main__":
    main()
