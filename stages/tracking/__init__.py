"""`--log mlflow|tensorboard|wandb`: the metrics of a run, shown by an experiment tracker while the run goes on."""
