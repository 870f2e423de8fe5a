"""Fine-tunes BERT on natural language inference, which WinoViz's encoders need."""
